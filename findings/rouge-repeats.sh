#!/bin/sh
# rouge 1.0.3 (npm): a text scores less than 1 against itself, and other words score 1. Nothing is said.
# ROUGE-N is the share of the reference's n-grams that the candidate has, each as often as it occurs (C.-Y. Lin, 2004). `rouge.n`
# counts each n-gram of the candidate once, and those of the reference as often as they occur. "to be or not to be" scores 0.67.
# Words end at each letter that is not ASCII, and this letter is left out. "Bär" (bear) and "Bör", "łąka" (meadow) and "łęka", "pêcher"
# (to fish) and "pécher" (to sin) so are the same words. A text in Cyrillic or Devanagari has no word, and is an error.
# The README calls it "as loyal as I can" to the paper, and says nothing of repeated words or of letters.
# js-rouge 3.2.3 (npm) gives 1 to the same texts, and 0 to other words.
# Summaries and translations in other languages than English so get scores of another scale.
# Here: nothing, no command has ROUGE.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund rouge@1.0.3 js-rouge@3.2.3
cat > run.js <<'NODE'
const rouge = require("rouge");
const other = require("js-rouge");

for (const [candidate, reference, n] of [
  ["to be or not to be", "to be or not to be", 1],
  ["to be or not to be", "to be or not to be", 2],
  ["the cat sat on the mat", "the cat sat on the mat", 1],
  ["a cat sat", "a cat sat", 1],
  ["Bär", "Bör", 1],
  ["łąka", "łęka", 1],
  ["pêcher", "pécher", 1],
  ["bear", "bird", 1],
]) {
  console.log(candidate, "|", reference, "|", rouge.n(candidate, reference, n).toFixed(2), other.n(candidate, reference, { n }).toFixed(2));
}
NODE
node run.js > found
cat found
cat > seen <<'SEEN'
to be or not to be | to be or not to be | 0.67 1.00
to be or not to be | to be or not to be | 0.80 1.00
the cat sat on the mat | the cat sat on the mat | 0.83 1.00
a cat sat | a cat sat | 1.00 1.00
Bär | Bör | 1.00 0.00
łąka | łęka | 1.00 0.00
pêcher | pécher | 1.00 0.00
bear | bird | 0.00 0.00
SEEN
cmp found seen
