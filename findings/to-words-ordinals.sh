#!/bin/sh
# to-words 5.7.0 (npm): `toOrdinal` writes the 1900th as the 1100th in 44 of 135 locales, and says nothing.
# Spanish has "Mil Centésimo", thousand hundredth, for 1300, 1700 and 1900, and "Mil Sexcentésimo", 1600, for 1200.
# For 1400 it has the words of 1700, for 1600 those of 1800, and for 1800 those of 1900. The 2600th has those of 2200.
# The hundreds alone are right: 200 is "Ducentésimo". 1100 and 1500 are too.
# So it is in Portuguese, Russian, Ukrainian, Polish, Czech, Finnish, Hungarian, Croatian, Arabic, Persian, Marathi and others.
# In Georgian, all of 1200 to 1900 have the words of 1100.
# In Igbo, 11000 and 10001 are both "Puku Iri Na Otu" as plain numbers. Below 100,000, 81 have the words of another.
# English, German, French, Hindi and Swahili write the first 3000 ordinals apart, and the first 100,000 numbers.
# Numbers that are written out for speech or for alignment then differ from those of the translation.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund to-words@5.7.0
cat > show.mjs <<'NODE'
import { createRequire } from "node:module";

const { LOCALES, ToWords } = createRequire(import.meta.url)("to-words");
const same = Object.keys(LOCALES).filter((localeCode) => {
  const words = new ToWords({ localeCode });
  return words.toOrdinal(1900) === words.toOrdinal(1100);
});
console.log(Object.keys(LOCALES).length, same.length, [...new Set(same.map((code) => code.split("-")[0]))].sort().join(" "));
for (const localeCode of ["es-ES", "pl-PL", "fa-IR", "ka-GE"]) {
  const words = new ToWords({ localeCode });
  for (let hundred = 100; hundred < 1000; hundred += 100) {
    console.log(localeCode, hundred, words.toOrdinal(hundred), "|", 1000 + hundred, words.toOrdinal(1000 + hundred));
  }
}
for (const localeCode of ["en-US", "de-DE", "fr-FR", "hi-IN", "sw-KE", "ig-NG"]) {
  const words = new ToWords({ localeCode });
  const ordinals = Array.from({ length: 3000 }, (_, index) => words.toOrdinal(index + 1));
  const numbers = Array.from({ length: 100000 }, (_, index) => words.convert(index));
  console.log(localeCode, 3000 - new Set(ordinals).size, 100000 - new Set(numbers).size, words.convert(10001), "|", words.convert(11000));
}
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
135 44 ar be bg ca cs ee el es fa fi hr hu ka lt lv mr pl pt ro ru sk sl sq sr tr uk
es-ES 100 Centésimo | 1100 Mil Centésimo
es-ES 200 Ducentésimo | 1200 Mil Sexcentésimo
es-ES 300 Tricentésimo | 1300 Mil Centésimo
es-ES 400 Cuadringentésimo | 1400 Mil Septingentésimo
es-ES 500 Quingentésimo | 1500 Mil Quingentésimo
es-ES 600 Sexcentésimo | 1600 Mil Octingentésimo
es-ES 700 Septingentésimo | 1700 Mil Centésimo
es-ES 800 Octingentésimo | 1800 Mil Noningentésimo
es-ES 900 Noningentésimo | 1900 Mil Centésimo
pl-PL 100 Setny | 1100 Tysiąc Setny
pl-PL 200 Dwusetny | 1200 Tysiąc Sześćsetny
pl-PL 300 Trzechsetny | 1300 Tysiąc Setny
pl-PL 400 Czterysetny | 1400 Tysiąc Siedemsetny
pl-PL 500 Pięćsetny | 1500 Tysiąc Pięćsetny
pl-PL 600 Sześćsetny | 1600 Tysiąc Osiemsetny
pl-PL 700 Siedemsetny | 1700 Tysiąc Setny
pl-PL 800 Osiemsetny | 1800 Tysiąc Dziewięćsetny
pl-PL 900 Dziewięćsetny | 1900 Tysiąc Setny
fa-IR 100 صدم | 1100 یک هزار و صدم
fa-IR 200 دویستم | 1200 یک هزار و ششصدم
fa-IR 300 سیصدم | 1300 یک هزار و صدم
fa-IR 400 چهارصدم | 1400 یک هزار و هفتصدم
fa-IR 500 پانصدم | 1500 یک هزار و پانصدم
fa-IR 600 ششصدم | 1600 یک هزار و هشتصدم
fa-IR 700 هفتصدم | 1700 یک هزار و صدم
fa-IR 800 هشتصدم | 1800 یک هزار و نهصدم
fa-IR 900 نهصدم | 1900 یک هزار و صدم
ka-GE 100 მეასე | 1100 ერთი ათასი მეასე
ka-GE 200 მეორასე | 1200 ერთი ათასი მეასე
ka-GE 300 მესამასე | 1300 ერთი ათასი მეასე
ka-GE 400 მეოთხასე | 1400 ერთი ათასი მეასე
ka-GE 500 მეხუთასე | 1500 ერთი ათასი მეასე
ka-GE 600 მეექვსასე | 1600 ერთი ათასი მეასე
ka-GE 700 მეშვიდასე | 1700 ერთი ათასი მეასე
ka-GE 800 მერვაასე | 1800 ერთი ათასი მეასე
ka-GE 900 მეცხრაასე | 1900 ერთი ათასი მეასე
en-US 0 0 Ten Thousand One | Eleven Thousand
de-DE 0 0 Zehn Tausend Eins | Elf Tausend
fr-FR 0 0 Dix Mille Un | Onze Mille
hi-IN 0 0 दस हज़ार एक | ग्यारह हज़ार
sw-KE 0 0 Kumi Elfu Moja | Kumi Na Moja Elfu
ig-NG 0 81 Puku Iri Na Otu | Puku Iri Na Otu
SEEN
cmp shown seen
