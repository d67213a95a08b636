#!/bin/sh
# iuliia 0.13.0 (PyPI) and 0.8.2 (npm): eight schemas that write Russian in Latin letters leave ё in Cyrillic, and nothing is said.
# "ещё" (still) becomes "eščё" by the schema SCIENTIFIC. Its last letter is U+0451, and looks as Latin "ë", which is U+00EB.
# So it is in ALA_LC, BGN_PCGN, BGN_PCGN_ALT, BS_2979, GOST_16876, GOST_779 and UNGEGN_1987. The three of ISO 9 write Latin "ë".
# A word so written is found by no search in Latin letters, a filter by script takes it for mixed, and a tokenizer cuts it.
# Its documentation names the schemas, and no letter that stays.
# Known in part: pull request 7 of iuliia mended a Cyrillic е in another schema.
# Here: nothing, no command changes scripts.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet iuliia==0.13.0
cd "$folder"
npm install --silent --no-audit --no-fund iuliia@0.8.2
cat > show.py <<'PYTHON'
import iuliia

for name in sorted(name for name in dir(iuliia) if name.isupper()):
    text = getattr(iuliia, name).translate("ещё")
    if "ё" in text or name.startswith("ISO_9"):
        print(name, text, *(f"{ord(letter):04x}" for letter in text if ord(letter) > 0x7F))
PYTHON
cat > show.mjs <<'NODE'
import * as iuliia from "iuliia";

for (const name of Object.keys(iuliia).filter((name) => /^[A-Z0-9_]+$/.test(name)).sort()) {
  const text = iuliia.translate("ещё", iuliia[name]);
  if (!text.includes("ё") && !name.startsWith("ISO_9")) continue;
  const codes = [...text].filter((letter) => letter > "\x7f").map((letter) => letter.codePointAt(0).toString(16).padStart(4, "0"));
  console.log(name, text, ...codes);
}
NODE
venv/bin/python show.py > python
node show.mjs > node
cat python
cmp python node
cat > seen <<'SEEN'
ALA_LC eshchё 0451
BGN_PCGN yeshchё 0451
BGN_PCGN_ALT yeshchё 0451
BS_2979 eshchё 0451
GOST_16876 eŝё 015d 0451
GOST_779 eŝё 015d 0451
ISO_9_1954 eščë 0161 010d 00eb
ISO_9_1968 eščë 0161 010d 00eb
ISO_9_1968_ALT eshchë 00eb
SCIENTIFIC eščё 0161 010d 0451
UNGEGN_1987 eščё 0161 010d 0451
SEEN
cmp python seen
