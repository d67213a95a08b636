#!/bin/sh
# chinese-numbers-converter 2.3.1 and number-to-chinese-words 1.0.20 (npm): large Chinese numbers are read and written as others.
# Chinese counts by 万 (ten thousand) and 亿 (a hundred million). chinese-numbers-converter reads 一亿三千万 (130 million) as
# 1000030000000. So it is with each number that has a 万 behind a 亿, such as 十四亿一千万 (1410 million), which reads 14 million million.
# number-to-chinese-words leaves one to nine 万 out behind 億: 100010000 is "一億", the words of 100000000, and so to 100090000.
# Nothing is said. The README of the first says that the "largest supported character is 億/亿", and that of the second that it
# converts numbers to Chinese words, and shows one with 億 and 萬.
# cn2an 0.5.24 (PyPI) reads and writes these numbers rightly.
# Numbers of two sides are compared to filter pairs of sentences. A budget or a population then never agrees.
# Here: nothing, no command reads words of numbers.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund chinese-numbers-converter@2.3.1 number-to-chinese-words@1.0.20
python3 -m venv venv
venv/bin/pip install --quiet cn2an==0.5.24
cat > run.js <<'NODE'
const ChineseNumber = require("chinese-numbers-converter");
const { default: writer } = require("number-to-chinese-words");

for (const words of ["三亿", "一千二百三十四万", "一亿三千万", "十四亿一千万", "一亿二千三百四十五万六千七百八十九"]) {
  console.log(words, new ChineseNumber(words).toInteger());
}
for (const number of [100000000, 100010000, 100012345, 100090000, 100100000, 123456789]) {
  console.log(number, writer.toWords(number));
}
NODE
node run.js > found
cat found
cat > seen <<'SEEN'
三亿 300000000
一千二百三十四万 12340000
一亿三千万 1000030000000
十四亿一千万 14000010000000
一亿二千三百四十五万六千七百八十九 1000023456789
100000000 一億
100010000 一億
100012345 一億零二千三百四十五
100090000 一億
100100000 一億零一十萬
123456789 一億二千三百四十五萬六千七百八十九
SEEN
cmp found seen
venv/bin/python - <<'PYTHON'
from cn2an import an2cn, cn2an

read = [cn2an(words) for words in ("一亿三千万", "十四亿一千万", "一亿二千三百四十五万六千七百八十九")]
written = [an2cn(number) for number in (100000000, 100010000, 100012345)]
print(*read, *written)
# Seen: 130000000 1410000000 123456789 一亿 一亿零一万 一亿零一万二千三百四十五
assert read == [130000000, 1410000000, 123456789]
assert written == ["一亿", "一亿零一万", "一亿零一万二千三百四十五"], written
PYTHON
