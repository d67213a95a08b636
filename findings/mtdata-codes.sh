#!/bin/sh
# mtdata 0.5.1 (PyPI): Romanian corpora of OPUS are listed as Wakde, a language of Papua, and nothing is said.
# OPUS has them under "mo", the code that ISO 639-1 had for Moldavian until 2008. It is in IANA's registry, and stands for "ro" there.
# mtdata looks for what it does not know as a code among the names of languages, and another name of Wakde (wkd) is Mo.
# So OPUS-qed-v2.0a-eng-wkd is Romanian with English, and a search for Romanian (ron) does not find it. 300 data sets are such.
# "bih", ISO 639-2's code for the Bihari languages, becomes ibh, a language of Vietnam that is called Bih.
# Names are found by the same function, so that "Greek" and "Mandarin" are none, and "ge" and "tu" are languages of China.
# langcodes 3.5.1 gives "ro" for "mo", and "bh" for "bih".
# The README says that codes are mapped to ISO 639-3 and to tags like BCP-47's.
# Known in part: issue 24 of mtdata is of "sh" and "nb", which were mended.
# Here: nothing, language_codes.py takes codes from Babel's tables.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mtdata==0.5.1 langcodes==3.5.1
cd "$folder"
export MTDATA="$folder/data"
{
  venv/bin/mtdata-iso mo bih ro ge tu Greek Mandarin
  venv/bin/mtdata list -l eng-wkd | grep qed | sed 's#\thttp.*/#\t#'
  venv/bin/mtdata list -id | grep -E -c -- '-wkd(-|$)'
  venv/bin/python -c 'from langcodes import standardize_tag; print(standardize_tag("mo"), standardize_tag("bih"))'
} > shown 2> log
cat shown
cat > seen <<'SEEN'
Input	ISO639_3	Name
mo	wkd	Wakde
bih	ibh	Bih
ro	ron	Romanian
ge	hmj	Ge
tu	mjg	Tu
Greek	-none-	-none-
Mandarin	-none-	-none-
OPUS-qed-v2.0a-eng-wkd	en-mo.txt.zip	*.en,*.mo
300
ro bh
SEEN
cmp shown seen
