#!/bin/sh
# lipilekhika 1.0.7 (PyPI) and 1.0.11 (npm): Punjabi in another script keeps letters of Gurmukhi, and nothing is said.
# Its signs for a nasal (ੰ) and for a double consonant (ੱ) stay as they are. So ਪੰਜਾਬੀ (Punjabi) is "पੰजाबी" in Devanagari and
# "paੰjābī" in Latin letters, and ਸਿੱਖ (Sikh) is "siੱkha". Both signs are frequent.
# Bengali ৎ stays too, as in উৎসব (festival), Sinhala ඟ, and Devanagari ॲ.
# A word of two scripts is found by no search, and a tokenizer cuts it.
# indic-transliteration 2.3.82 writes पंजाबी, सिक्ख and उत्सव.
# Here: nothing, no command changes scripts.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet lipilekhika==1.0.7 indic-transliteration==2.3.82
cd "$folder"
npm install --silent --no-audit --no-fund lipilekhika@1.0.11
cat > show.py <<'PYTHON'
from indic_transliteration import sanscript
from lipilekhika import transliterate

words = (("ਪੰਜਾਬੀ", "Gurumukhi"), ("ਸਿੱਖ", "Gurumukhi"), ("উৎসব", "Bengali"))
for word, script in words:
    print(word, transliterate(word, script, "Devanagari"), transliterate(word, script, "Romanized"))
print(transliterate("ගඟ", "Sinhala", "Devanagari"), transliterate("ॲप", "Devanagari", "Telugu"))
scripts = {"Gurumukhi": sanscript.GURMUKHI, "Bengali": sanscript.BENGALI}
print(*(sanscript.transliterate(word, scripts[script], sanscript.DEVANAGARI) for word, script in words))
PYTHON
cat > show.mjs <<'NODE'
import { transliterate } from "lipilekhika";

console.log(await transliterate("ਪੰਜਾਬੀ", "Gurumukhi", "Devanagari"), await transliterate("ਸਿੱਖ", "Gurumukhi", "Devanagari"));
NODE
venv/bin/python show.py > shown
node show.mjs >> shown
cat shown
cat > seen <<'SEEN'
ਪੰਜਾਬੀ पੰजाबी paੰjābī
ਸਿੱਖ सिੱख siੱkha
উৎসব उৎसब uৎsaba
गඟ ॲప
पंजाबी सिक्ख उत्सव
पੰजाबी सिੱख
SEEN
cmp shown seen
