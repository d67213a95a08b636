#!/bin/sh
# direction 2.0.1 and rtl-detect 1.1.2 (npm): text that runs from right to left is said to run from left to right.
# direction looks for the first letter with a direction, and takes each character beyond U+FFFF for a letter from the left.
# So an Arabic or Hebrew line that begins with an emoji is "ltr", and so is all text in Adlam (Fulah) and Hanifi Rohingya.
# Samaritan, Mandaic and the letters of Arabic Extended-A (U+08A0 on, of African languages) are "ltr" too.
# A fullwidth "（" before Hebrew has the same effect. In Unicode, an emoji and a bracket have no direction.
# rtl-detect reads no digits in a code: ar-001, Modern Standard Arabic in CLDR, is "ltr", where ar and ar-EG are "rtl".
# It looks at the language alone, so that ur-Latn and sd-Deva are "rtl", and pa-PK, az-Arab and ks (Kashmiri) "ltr".
# Subtitles and pages that ask either then show full stops and brackets at the wrong end of a line.
# Known in part: issue 2 of rtl-detect is of scripts in a code.
# Here: nothing, no command shows text.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund direction@2.0.1 rtl-detect@1.1.2
cat > show.mjs <<'NODE'
import { direction } from "direction";
import detect from "rtl-detect";

const texts = ["مرحبا", "😀 مرحبا", "🎬 שלום", "（שלום）", "(שלום)", "𞤆𞤵𞤤𞤢𞤪", "𐴌𐴟𐴇𐴥𐴝", "ࠔࠌࠓ", "ࡌࡀࡍ", "ࢠ"];
console.log(texts.map(direction).join(" "));
const codes = ["ar", "ar-EG", "ar-001", "ur-Latn", "sd-Deva", "pa-PK", "az-Arab", "ks"];
console.log(codes.map((code) => `${code} ${detect.getLangDir(code)}`).join(", "));
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
rtl ltr ltr ltr rtl ltr ltr ltr ltr ltr
ar rtl, ar-EG rtl, ar-001 ltr, ur-Latn rtl, sd-Deva rtl, pa-PK ltr, az-Arab ltr, ks ltr
SEEN
cmp shown seen
