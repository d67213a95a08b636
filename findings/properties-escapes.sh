#!/bin/sh
# java-properties 1.0.2 and properties-reader 3.0.1 (npm), and pyjavaproperties 0.7 (PyPI) lose text of Java .properties files.
# Java reads "\u00fc" as ü, and "don\'t" as "don't": it leaves a backslash out that stands for nothing.
# java-properties fails at "don\'t" with a SyntaxError of JSON that names no file.
# With a blank between name and text it takes the whole line for the name, and gives no text.
# properties-reader leaves "\u00fc" and "\n" as they are. Of "greeting: Hallo" it makes a name without a text, and of a text
# on two lines a text that ends in "\" and a name. Its README calls itself a reader of .ini and "properties" files.
# pyjavaproperties leaves "\u00fc" as it is too, and after a text that ends in "\\" it takes the next entry for more text.
# Its summary calls it a replacement for java.util.Properties. Nothing is said but by the first.
# A translation memory that is made of such files has escapes in its sentences, and lacks some.
# javaproperties 0.8.2 of PyPI and dot-properties 1.1.2 of npm read all of it rightly.
# Known in part: issues 15 and 20 of java-properties are of "\u" and ":", which it reads since.
# Here: nothing, no command reads .properties files.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyjavaproperties==0.7 javaproperties==0.8.2
cd "$folder"
npm install --silent --no-audit --no-fund java-properties@1.0.2 properties-reader@3.0.1 dot-properties@1.1.2
printf '%s\n' 'greeting: Hallo' 'bye  Tschüss' 'door=T\u00fcr' 'lines=eins\nzwei' 'long=drei \' '    vier' 'folder=C:\\' 'open=Öffnen' > de.properties
printf '%s\n' "no=don\\'t" > quote.properties
printf '%s\n' 'bye  Tschüss' > blank.properties
cat > show.py <<'PYTHON'
import json
from pathlib import Path

import javaproperties
from pyjavaproperties import Properties

text = Path("de.properties").read_text(encoding="utf-8")
java = Properties()
java.load(Path("de.properties").open(encoding="utf-8"))
for found in javaproperties.loads(text), java.getPropertyDict():
    print(json.dumps(dict(sorted(found.items())), ensure_ascii=False))
PYTHON
cat > show.cjs <<'NODE'
const { readFileSync } = require("node:fs");
const dot = require("dot-properties");
const java = require("java-properties");
const { propertiesReader } = require("properties-reader");

const sorted = (found) => JSON.stringify(Object.fromEntries(Object.entries(found).sort(([a], [b]) => (a < b ? -1 : 1))));
console.log(sorted(dot.parse(readFileSync("de.properties", "utf8"))));
console.log(sorted(propertiesReader({ sourceFile: "de.properties" }).getAllProperties()));
console.log(JSON.stringify(dot.parse(readFileSync("quote.properties", "utf8"))));
try {
  java.of("quote.properties");
} catch (error) {
  console.log(error.name);
}
console.log(JSON.stringify(java.of("blank.properties").getKeys()));
NODE
venv/bin/python show.py > shown
node show.cjs >> shown
cat shown
cat > seen <<'SEEN'
{"bye": "Tschüss", "door": "Tür", "folder": "C:\\", "greeting": "Hallo", "lines": "eins\nzwei", "long": "drei vier", "open": "Öffnen"}
{"bye": "Tschüss", "door": "T\\u00fcr", "folder": "C:\\open=Öffnen", "greeting": "Hallo", "lines": "eins\\nzwei", "long": "drei vier"}
{"bye":"Tschüss","door":"Tür","folder":"C:\\","greeting":"Hallo","lines":"eins\nzwei","long":"drei vier","open":"Öffnen"}
{"bye  Tschüss":"","door":"T\\u00fcr","folder":"C:\\\\","greeting: Hallo":"","lines":"eins\\nzwei","long":"drei \\","open":"Öffnen","vier":""}
{"no":"don't"}
SyntaxError
["bye  Tschüss"]
SEEN
cmp shown seen
