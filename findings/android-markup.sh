#!/bin/sh
# android-string-resource 2.3.10 (npm): in Android's strings.xml, a text with markup in it is read as another text.
# "<b>हिन्दी</b> में" is read with a character reference for each letter, as "&#x939;&#x93f;...". Without <b> it is read rightly.
# In the placeholder %1$s inside <xliff:g>, the "$" becomes "&#x24;". Android's documentation shows such markup.
# A form of <plurals> that begins with markup is undefined. If all forms do, js2asr writes no <plurals> at all.
# "\u00d6" is read as "u00d6", where Android reads Ö. So does rdotjson 1.1.1, with which it reads. Of <plurals>, rdotjson makes
# one text of all forms: "%d file%d files". Nothing is said.
# translate-toolkit 3.20.4 reads the same file rightly.
# Here: nothing, no command reads strings.xml.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet translate-toolkit==3.20.4
cd "$folder"
npm install --silent --no-audit --no-fund android-string-resource@2.3.10 rdotjson@1.1.1
cat > strings.xml <<'XML'
<?xml version="1.0" encoding="utf-8"?>
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">
    <string name="language">हिन्दी में</string>
    <string name="bold"><b>हिन्दी</b> में</string>
    <string name="hello">Hallo, <xliff:g id="name">%1$s</xliff:g>!</string>
    <string name="open">\u00d6ffnen</string>
    <plurals name="files"><item quantity="one"><b>%d</b> file</item><item quantity="other"><b>%d</b> files</item></plurals>
</resources>
XML
cat > show.mjs <<'NODE'
import { readFileSync } from "node:fs";
import asr from "android-string-resource";
import rdotjson from "rdotjson";

const file = readFileSync("strings.xml", "utf8");
const texts = await asr.asr2js(file);
for (const [name, text] of Object.entries(texts)) console.log(name, text);
const written = await asr.js2asr(texts);
console.log("plurals written:", written.includes("<plurals"));
const read = await rdotjson(file);
console.log("rdotjson:", read.plurals.files, read.string.open);
NODE
cat > show.py <<'PYTHON'
from translate.storage.aresource import AndroidResourceFile

with open("strings.xml", "rb") as file:
    for unit in AndroidResourceFile(file).units:
        print(unit.getid(), *getattr(unit.target, "strings", [unit.target]), sep=" | ")
PYTHON
node show.mjs > node
venv/bin/python show.py > python
cat node python
cat > seen <<'SEEN'
language हिन्दी में
bold <b>&#x939;&#x93f;&#x928;&#x94d;&#x926;&#x940;</b> &#x92e;&#x947;&#x902;
hello Hallo, <xliff:g id="name">%1&#x24;s</xliff:g>!
open u00d6ffnen
files.one undefined
files.other undefined
plurals written: false
rdotjson: %d file%d files u00d6ffnen
language | हिन्दी में
bold | <b>हिन्दी</b> में
hello | Hallo, <xliff:g id="name">%1$s</xliff:g>!
open | Öffnen
files | <b>%d</b> file | <b>%d</b> files
SEEN
cat node python | cmp - seen
