#!/bin/sh
# hyphen 1.14.1 (npm): a Turkish word with İ is hyphenated a letter too late from there on: İstanbullular (people of Istanbul)
# becomes "İst-anb-ull-ul-ar". In small letters it is rightly "is-tan-bul-lu-lar", and with İ it is the same five syllables.
# The word is made lower case first, and JavaScript's lower case of İ is two characters, so that all later places are one off.
# Text in NFD, where an accent is a character after its letter, gets hyphens between a letter and its accent:
# Greek θάλασσα (sea) becomes "θα-" and "´λασσα". So it does in pyphen 0.18.1 (PyPI), with Czech and other languages.
# A soft hyphen there also parts the two for search and for tokenizers. Nothing is said.
# In NFC both hyphenate the same words rightly. Their documentation names no normal form.
# Here: prepare/rules.py writes text in NFC and takes soft hyphens out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyphen==0.18.1
cd "$folder"
npm install --silent --no-audit --no-fund hyphen@1.14.1
cat > show.cjs <<'NODE'
const options = { hyphenChar: "-" };
const turkish = require("hyphen/tr").hyphenateSync;
for (const word of ["istanbullular", "İstanbullular", "İzmirliler", "BİLGİSAYARLAR", "bilgisayarlar"]) console.log(turkish(word, options));
const greek = require("hyphen/el").hyphenateSync;
for (const form of ["NFC", "NFD"]) console.log(JSON.stringify(greek("θάλασσα".normalize(form), options)).replace("\u0301", "<U+0301>"));
NODE
cat > show.py <<'PYTHON'
from unicodedata import normalize

from pyphen import Pyphen

for language, word in ("cs", "nejneobhospodařovávatelnější"), ("sk", "najneobhospodarovávateľnejší"), ("el", "θάλασσα"):
    for form in "NFC", "NFD":
        print(language, Pyphen(lang=language).inserted(normalize(form, word)).replace("-\u0301", "-<U+0301>"))
PYTHON
node show.cjs > shown
venv/bin/python show.py >> shown
cat shown
cat > seen <<'SEEN'
is-tan-bul-lu-lar
İst-anb-ull-ul-ar
İzm-irl-il-er
Bİ-LG-İS-A-YA-RLA-R
bil-gi-sa-yar-lar
"θά-λασ-σα"
"θα-<U+0301>λασ-σα"
cs nej-ne-ob-hos-po-da-řo-vá-va-tel-něj-ší
cs nej-ne-ob-hos-po-dařo-va-<U+0301>-va-tel-něj-ší
sk naj-ne-ob-hos-po-da-ro-vá-va-teľ-nej-ší
sk naj-ne-ob-hos-po-da-ro-va-<U+0301>va-te-ľnej-ší
el θάλασ-σα
el θα-<U+0301>λασ-σα
SEEN
cmp shown seen
