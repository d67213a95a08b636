#!/bin/sh
# translitbg 1.3.1 (npm): Bulgarian "ия" is written as at the end of a word wherever it stands, and nothing is said.
# Bulgaria's Transliteration Act, to which the README links, has "ia" for "ия" at the end of a word alone: София is Sofia.
# Elsewhere it is "iya". приятел (friend) is "priyatel", and here "priatel". So it is with приятно (pleasant) and пиян (drunk).
# The code has the rule in a comment, and asks whether a letter follows by `\w`, which is a Latin letter in JavaScript.
# история (history) is "istoria" and историята (the history) "istoriyata", but here "istoriata".
# Names in passports, on signs and in parallel text are written by the Act. The same name then has two forms.
# Here: nothing, no command romanizes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund translitbg@1.3.1
cat > show.cjs <<'NODE'
const translitbg = require("translitbg");

const words = {
  София: "Sofia",
  история: "istoria",
  "Мария Иванова": "Maria Ivanova",
  приятел: "priyatel",
  приятно: "priyatno",
  пиян: "piyan",
  историята: "istoriyata",
  Марияна: "Mariyana",
  Бояна: "Boyana",
};
for (const [word, rule] of Object.entries(words)) console.log(word, rule, translitbg.go(word));
NODE
node show.cjs > shown
cat shown
cat > seen <<'SEEN'
София Sofia Sofia
история istoria istoria
Мария Иванова Maria Ivanova Maria Ivanova
приятел priyatel priatel
приятно priyatno priatno
пиян piyan pian
историята istoriyata istoriata
Марияна Mariyana Mariana
Бояна Boyana Boyana
SEEN
cmp shown seen
