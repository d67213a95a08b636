#!/bin/sh
# edit-distance 1.0.5 (npm): letters at the start of a word cost 1, whatever the cost functions say. Nothing is said.
# `levenshtein` takes functions for the costs of inserting, removing and updating a letter. The first row and column of its table count
# letters and do not ask them. With 0.5 for a vowel, as for words that one language borrowed from another, "iskola" (Hungarian) and
# "skola" are 1 apart, and "skola" and "skolai" 0.5. Both pairs differ by one vowel. The empty word and "aeiou" are 5 apart, not 2.5.
# So a vowel before a word counts twice as much as one behind it. The pairs of letters that `pairs()` returns cost 0.5 each time.
# The README defines the distance as "the minimum number of *insert*, *remove*, and *update* operations", with costs by functions.
# The script adds the costs of the pairs by these functions: their sum is the distance of Wagner and Fischer (1974), cited there.
# Cognates and spellings that are grouped by such a distance fall apart where languages put a vowel before a word.
# Here: nothing, no command weighs letters.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund edit-distance@1.0.5
cat > show.cjs <<'NODE'
const { levenshtein } = require("edit-distance");

const cost = (letter) => (/[aeiou]/.test(letter) ? 0.5 : 1);
const update = (one, other) => (one === other ? 0 : 1);
for (const [one, other] of [
  ["iskola", "skola"],
  ["skola", "skolai"],
  ["umtu", "mtu"],
  ["mtu", "mutu"],
  ["omuntu", "muntu"],
  ["", "aeiou"],
  ["bat", "at"],
]) {
  const found = levenshtein(one, other, cost, cost, update);
  const sum = found
    .pairs()
    .map(([left, right]) => (left === null ? cost(right) : right === null ? cost(left) : update(left, right)))
    .reduce((total, part) => total + part, 0);
  console.log(JSON.stringify(one), JSON.stringify(other), found.distance, "pairs", sum);
}
NODE
node show.cjs > shown
cat shown
cat > seen <<'SEEN'
"iskola" "skola" 1 pairs 0.5
"skola" "skolai" 0.5 pairs 0.5
"umtu" "mtu" 1 pairs 0.5
"mtu" "mutu" 0.5 pairs 0.5
"omuntu" "muntu" 1 pairs 0.5
"" "aeiou" 5 pairs 2.5
"bat" "at" 1 pairs 1
SEEN
cmp shown seen
