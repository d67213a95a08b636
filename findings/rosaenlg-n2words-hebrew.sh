#!/bin/sh
# rosaenlg-n2words 3.3.0 (npm): in Hebrew, numbers from 10,000 on lose their thousands, and in Turkish 101,001 is 100,001.
# 10,000 and 100,000 are written as an empty text, 30,021 as "עשרים ואחת" (twenty-one), 12,000 as "אלפיים" (two thousand) and a
# million as "אלף" (a thousand). Nothing is said.
# Turkish leaves "bir" (one) out before "bin" (thousand), but only for 1,000 to 1,999. Here the "bir" of 101,001 is left out too, so
# that "yüzbinbir" is both numbers. Of the numbers up to 110,000, 999 have the words of another: 100,001 to 100,999 and 101,001 to 101,999.
# It is a fork of n2words 1.8.0, and names both languages as supported, without a limit. n2words 4.0.0 writes all of these apart.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund rosaenlg-n2words@3.3.0 n2words@4.0.0
cat > show.mjs <<'NODE'
import words from "rosaenlg-n2words/lib/n2words.mjs";
import { toCardinal as hebrew } from "n2words/he-IL";
import { toCardinal as turkish } from "n2words/tr-TR";

for (const number of [9999, 10000, 12000, 30021, 100000, 1000000]) console.log(number, `[${words(number, { lang: "he" }).trim()}]`);
for (const number of [1001, 100001, 101001, 101000]) console.log(number, words(number, { lang: "tr" }));
console.log(new Set([10000, 100000, 21, 30021, 12000, 2000].map((number) => hebrew(number))).size);
console.log(turkish(100001) === turkish(101001));
NODE
node show.mjs > found
cat found
cat > seen <<'SEEN'
9999 [תשעת אלפים תשע מאות תשעים ותשע]
10000 []
12000 [אלפיים]
30021 [עשרים ואחת]
100000 []
1000000 [אלף]
1001 binbir
100001 yüzbinbir
101001 yüzbinbir
101000 yüzbirbin
6
false
SEEN
cmp found seen
