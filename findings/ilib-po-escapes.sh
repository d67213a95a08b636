#!/bin/sh
# ilib-po 1.1.4 (npm): a line break or tab in a catalogue becomes a backslash and a letter, and nothing is said.
# "one\ntwo" is read with a backslash and an "n" between the words, as is the path "C:\\new", and written as "one\\ntwo".
# So a catalogue that is read and written again has other sources. A program that asks for its text finds no translation.
# In a translation memory of its resources, sentences of two lines have "\n" in the middle of them as letters.
# polib 1.2.0 and gettext-parser 10.0.0 read the break and the tab.
# Here: nothing, no command reads a catalogue.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet polib==1.2.0
cd "$folder"
npm install --silent --no-audit --no-fund ilib-po@1.1.4 gettext-parser@10.0.0
cat > de.po <<'PO'
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"

msgid "one\ntwo"
msgstr "eins\nzwei"

msgid "a\tb"
msgstr "c\td"

msgid "C:\\new"
msgstr "C:\\neu"
PO
cat > show.mjs <<'NODE'
import { readFileSync, writeFileSync } from "node:fs";
import { po } from "gettext-parser";
import { Generator, Parser } from "ilib-po";

const file = readFileSync("de.po", "utf8");
const shared = { projectName: "app", sourceLocale: "en-US", targetLocale: "de-DE", datatype: "po" };
const read = new Parser({ ...shared, pathName: "de.po" }).parse(file);
console.log("ilib-po", JSON.stringify(read.getAll().map((resource) => [resource.getSource(), resource.getTarget()])));
writeFileSync("again.po", new Generator({ ...shared, pathName: "again.po" }).generate(read));
console.log("gettext-parser", JSON.stringify(Object.keys(po.parse(file).translations[""]).slice(1)));
NODE
cat > show.py <<'PYTHON'
import json

import polib

for name in ("de.po", "again.po"):
    print(name, json.dumps([[entry.msgid, entry.msgstr] for entry in polib.pofile(name)]))
PYTHON
node show.mjs > shown
venv/bin/python show.py >> shown
cat shown
cat > seen <<'SEEN'
ilib-po [["one\\ntwo","eins\\nzwei"],["a\\tb","c\\td"],["C:\\new","C:\\neu"]]
gettext-parser ["one\ntwo","a\tb","C:\\new"]
de.po [["one\ntwo", "eins\nzwei"], ["a\tb", "c\td"], ["C:\\new", "C:\\neu"]]
again.po [["one\\ntwo", "eins\\nzwei"], ["a\\tb", "c\\td"], ["C:\\new", "C:\\neu"]]
SEEN
cmp shown seen
