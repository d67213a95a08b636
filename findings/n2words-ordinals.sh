#!/bin/sh
# n2words 4.0.0 (npm): ordinal numbers of several languages are those of other numbers, and nothing is said.
# In Hebrew, the 20th is "עשרים וראשון", twenty and first, as the 21st is. So it is with 30 to 90: of the first 999, 80 have the
# words of another. From 11 on, Hebrew's ordinals are its cardinals: the 20th is "העשרים".
# In Romanian, the 100th, 200th and so on to the 900th are all "al sutălea". The 200th is "al două sutelea".
# In Spanish, the 1,000,000,000th is "undefinedcentésimo millonésimo".
# English, French, Italian, Hindi, Arabic, Turkish and Polish write all of the first 999 apart.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund n2words@4.0.0
cat > show.mjs <<'NODE'
for (const language of ["he-IL", "ro-RO", "en-US", "fr-FR", "it-IT", "hi-IN", "ar-SA", "tr-TR", "pl-PL"]) {
  const { toOrdinal } = await import(`n2words/${language}`);
  const words = Array.from({ length: 999 }, (_, index) => toOrdinal(index + 1));
  console.log(language, 999 - new Set(words).size);
  if (language === "he-IL") console.log(words[19], "|", words[20], "|", words[21]);
  if (language === "ro-RO") console.log(words[99], "|", words[199], "|", words[899]);
}
const { toOrdinal } = await import("n2words/es-ES");
console.log(toOrdinal(1000000), "|", toOrdinal(1000000000));
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
he-IL 80
עשרים וראשון | עשרים וראשון | עשרים ושני
ro-RO 8
al sutălea | al sutălea | al sutălea
en-US 0
fr-FR 0
it-IT 0
hi-IN 0
ar-SA 0
tr-TR 0
pl-PL 0
millonésimo | undefinedcentésimo millonésimo
SEEN
cmp shown seen
