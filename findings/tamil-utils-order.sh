#!/bin/sh
# tamil-utils 0.4.0 (PyPI): `sort_tamil` sorts Tamil words in the order of the Latin alphabet, and nothing is said.
# Tamil's letters begin with twelve vowels, and then க, ங, ச, ஞ, ட. Words are written in Latin letters first and these are compared,
# so that சக்கரம் (cakkaram) stands between the vowels ஆ and எ, and இலை (ilai) behind ஹோட்டல் (hōṭṭal).
# Of 26 words with another first letter each, in their right order, 4 stand where they were.
# A list of words, a lexicon or an index that is sorted so is in no order that a reader of Tamil knows.
# The README calls it "Tamil collation". Its command is to "Sort words in Tamil order".
# The Intl.Collator of Node 20, for Tamil, has each of them in the order of the dictionary.
# Here: nothing, no command sorts words of a language.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tamil-utils==0.4.0
cd "$folder"
cat > words <<'WORDS'
அம்மா ஆடு இலை ஈ உலகம் ஊர் எலி ஏணி ஐந்து ஒன்று ஓடு ஔவை கல் சக்கரம் ஞாயிறு டமாரம் தமிழ் நாடு பால் மரம் யானை ரயில் லட்சம் வீடு ஜன்னல் ஹோட்டல்
WORDS
cat > show.py <<'PYTHON'
from tamil_utils import sort_tamil

words = open("words", encoding="utf-8").read().split()
found = sort_tamil(words)
print(len(words), sum(one == two for one, two in zip(words, found)))
print(*found)
PYTHON
"$folder/venv/bin/python" show.py > shown
cat > show.mjs <<'NODE'
import { readFileSync } from "node:fs";

const words = readFileSync("words", "utf8").trim().split(" ");
const collator = new Intl.Collator("ta");
console.log(collator.resolvedOptions().locale, [...words].reverse().sort(collator.compare).join(" ") === words.join(" "));
NODE
node show.mjs >> shown
cat shown
cat > seen <<'SEEN'
26 4
அம்மா ஆடு சக்கரம் எலி ஏணி ஐந்து ஹோட்டல் இலை ஈ ஜன்னல் கல் லட்சம் மரம் நாடு ஞாயிறு ஒன்று ஓடு ஔவை பால் ரயில் தமிழ் டமாரம் உலகம் ஊர் வீடு யானை
ta true
SEEN
cmp shown seen
