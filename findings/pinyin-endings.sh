#!/bin/sh
# pinyin-split 1.170.0 and prettify-pinyin 0.1.5 (npm): syllables of pinyin are lost, or written with their digits. Nothing is said.
# Pinyin writes the ending 儿 as an "r" of its own syllable (GB/T 16159). pinyin-split leaves it out: "huār" (flower) is "huā".
# "zhèr" (here) and "gēr" (song) lose their beginnings, and are "èr" and "ēr". èr is 2, with which "here" has no letter in common.
# With `everything`, which keeps what is no pinyin, they are "zh", "èr". The README shows no word with this ending.
# prettify-pinyin gives no mark to a syllable that begins with a capital vowel: "An1 hui1" is "An1 huī", and "E2 luo2 si1" (Russia)
# "E2 luó sī". Of two vowels, the wrong one gets it: "Ou1 zhou1" (Europe) is "Oū zhōu", and not "Ōu zhōu".
# pinyin-utils 2.32.0 (npm) marks the same vowel there, and is right with the others.
# "lu:4", which CC-CEDICT writes for lǜ, becomes "lù:". The README says that it is for "entries for the CC-CEDICT dictionary".
# dragonmapper 0.3.0 (PyPI) parts "zhèr" as "zhe4r5", and writes "Ānhuī", "Éluósī" and "Ōuzhōu".
# A dictionary that is joined by pinyin so lacks names of places, and takes "here" for "two".
# Here: nothing, no command romanizes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund pinyin-split@1.170.0 prettify-pinyin@0.1.5 pinyin-utils@2.32.0
python3 -m venv venv
venv/bin/pip install --quiet dragonmapper==0.3.0
cat > run.js <<'NODE'
const { split } = require("pinyin-split");
const { prettify } = require("prettify-pinyin");
const { numberToMark } = require("pinyin-utils");

for (const word of ["huār", "yīdiǎnr", "zhèr", "gēr", "érzi"]) {
  console.log(word, "|", ...split(word), "|", ...split(word, true));
}
for (const name of ["An1 hui1", "E2 luo2 si1", "Ou1 zhou1", "lu:4 se4", "Bei3 jing1"]) {
  console.log(name, "|", prettify(name), "|", ...name.split(" ").map(numberToMark));
}
NODE
node run.js > found
cat found
cat > seen <<'SEEN'
huār | huā | huā r
yīdiǎnr | yī diǎn | yī diǎn r
zhèr | èr | zh èr
gēr | ēr | g ēr
érzi | ér zi | ér zi
An1 hui1 | An1 huī | Ān huī
E2 luo2 si1 | E2 luó sī | É luó sī
Ou1 zhou1 | Oū zhōu | Oū zhōu
lu:4 se4 | lù: sè | lu:4 sè
Bei3 jing1 | Běi jīng | Běi jīng
SEEN
cmp found seen
venv/bin/python - <<'PYTHON'
from dragonmapper.transcriptions import accented_to_numbered, numbered_to_accented

words = [accented_to_numbered(word) for word in ("huār", "yīdiǎnr", "zhèr", "gēr", "érzi")]
print(*words)
# Seen: hua1r5 yi1dian3r5 zhe4r5 ge1r5 er2zi5
assert words == ["hua1r5", "yi1dian3r5", "zhe4r5", "ge1r5", "er2zi5"]
names = [numbered_to_accented(name) for name in ("An1hui1", "E2luo2si1", "Ou1zhou1")]
print(*names)
# Seen: Ānhuī Éluósī Ōuzhōu
assert names == ["Ānhuī", "Éluósī", "Ōuzhōu"]
PYTHON
