#!/bin/sh
# iso-639-3-to-1 1.0.0 (npm): Indonesian becomes Malay, and Croatian becomes "sh", a code that ISO 639-1 no longer has.
# Seven languages have a two-letter code of their own, and get that of a language that they are part of: bos, hrv and srp are "sh",
# ind is "ms", nob and nno are "no", and twi is "ak". Nothing is said.
# The README gives a language another's code only if it has none of its own, as for cmn (Mandarin, "zh").
# Data that are sorted by these codes have Indonesian and Malay as one language, and Croatian as one that no model knows.
# iso-639-3 3.0.1 has a code of its own for each of the seven.
# Here: nothing, language_codes.py decides by CLDR's tables from Babel.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund iso-639-3-to-1@1.0.0 iso-639-3@3.0.1
cat > show.mjs <<'NODE'
import { iso6393To1 } from "iso-639-3";
import convert from "iso-639-3-to-1";

const found = Object.entries(iso6393To1).filter(([code, own]) => convert(code) !== own);
for (const [code, own] of found) console.log(code, own, "as", convert(code));
console.log(convert("cmn"), convert("msa"), convert("deu"));
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
bos bs as sh
hrv hr as sh
ind id as ms
nno nn as no
nob nb as no
srp sr as sh
twi tw as ak
zh ms de
SEEN
cmp shown seen
