#!/bin/sh
# @geolonia/japanese-numeral 1.0.2 (npm): a Japanese number with a point or comma is read as 0, and found in a text as another.
# 1.5億 (150 million) and 2,500万 (25 million) are usual forms. `kanji2number` returns 0 for both. In a text,
# `findKanjiNumbers` finds 5億 (500 million) and 500万 (5 million), what stands behind the point or comma. Nothing is said.
# 一〇〇万 (a million), with zeros in kanji, is NaN.
# Its README says that numbers in mixed digits and kanji are supported. 1億2000万 is read rightly.
# japanese-numerals-to-number 1.0.2 reads 一〇〇万 as 1000000, and raises an error for the other two.
# Numbers of two sides are compared to filter pairs of sentences.
# Here: nothing, no command reads words of numbers.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund @geolonia/japanese-numeral@1.0.2 japanese-numerals-to-number@1.0.2
cat > show.mjs <<'NODE'
import japanese from "@geolonia/japanese-numeral";
import other from "japanese-numerals-to-number";

for (const words of ["1億2000万", "1.5億", "2,500万", "一〇〇万"]) console.log(words, japanese.kanji2number(words));
console.log(japanese.findKanjiNumbers("予算は1.5億円で、人口は2,500万人です。").join(" "));
console.log(other("一〇〇万"));
NODE
node show.mjs > found
cat found
cat > seen <<'SEEN'
1億2000万 120000000
1.5億 0
2,500万 0
一〇〇万 NaN
5億 500万
1000000
SEEN
cmp found seen
