#!/bin/sh
# word-error-rate 0.0.7 (npm): a word that is missing or too many counts as no error where the first word comes again.
# The first row and column of its table have no cost for a pair of equal words, whatever stands before them. So "no" for "no no no"
# has a distance and a rate of 0, as has "the the cat sat" for "the cat sat": a false start, which recognizers repeat.
# "he was late" for "he said he was late" has a distance of 1, where two words are missing. Nothing is said.
# Its README says that it "calculates Levenshtein Edit Distance on a per word basis". fastest-levenshtein 1.0.16 has 2, 1 and 2 with a
# letter for each word.
# Here: nothing, no command has a word error rate.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund word-error-rate@0.0.7 fastest-levenshtein@1.0.16
cat > show.mjs <<'NODE'
import { distance } from "fastest-levenshtein";
import scorer from "word-error-rate";

const pairs = [["no", "no no no"], ["the the cat sat", "the cat sat"], ["he was late", "he said he was late"], ["one hen", "won hen"]];
for (const [found, expected] of pairs) {
  const letters = [found, expected].map((text) => text.split(" ").map((word) => String.fromCharCode(97 + "no the cat sat he was late said one hen won".split(" ").indexOf(word))).join(""));
  console.log(scorer.calculateEditDistance(found, expected), scorer.wordErrorRate(found, expected), distance(...letters));
}
NODE
node show.mjs > found
cat found
cat > seen <<'SEEN'
0 0 2
0 0 1
1 0.2 2
1 0.5 1
SEEN
cmp found seen
