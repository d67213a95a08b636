#!/bin/sh
# tmexchange 2.0.6: tmx2js loses units of a TMX file that have no `tuid`, and says nothing. TMX requires no `tuid`.
# A unit's text in the source language is its name then. Of two units with the same source, the second alone is kept: a memory
# has "right" once, as "richtig", and no more as "rechts". In parallel text, short sentences have many translations.
# If `srclang` is "*all*" (each language may be the source) or another case ("EN" for "en"), none of them is left at all.
# TMX 1.4b allows the first, and says of the second that values are not case-sensitive.
# Written by js2tmx, the file is shorter. If the last unit has no `tuid`, those of the others are lost too.
# translate-toolkit 3.20.4 reads all units of each of these files.
# Here: nothing, data/readers reads TMX itself.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet translate-toolkit==3.20.4
cd "$folder"
npm install --silent --no-audit --no-fund tmexchange@2.0.6
cat > show.mjs <<'NODE'
import { writeFileSync } from "node:fs";
import tmexchange from "tmexchange";

const unit = (source, target, id = "") =>
  `<tu${id}><tuv xml:lang="en"><seg>${source}</seg></tuv><tuv xml:lang="de"><seg>${target}</seg></tuv></tu>`;
const twice = [unit("right", "rechts"), unit("right", "richtig")];
const once = [unit("left", "links", ' tuid="7"'), unit("right", "rechts")];
for (const [name, srclang, units] of [["twice", "en", twice], ["all", "*all*", once], ["case", "EN", once], ["id", "en", once]]) {
  const header = `creationtool="x" creationtoolversion="1" segtype="sentence" o-tmf="x" adminlang="en" datatype="plaintext"`;
  const body = `<header ${header} srclang="${srclang}"/><body>${units.join("")}</body>`;
  const file = `<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">${body}</tmx>\n`;
  writeFileSync(`${name}.tmx`, file);
  const read = await tmexchange.tmx2js(file);
  const ids = (await tmexchange.js2tmx(read)).match(/tuid="[^"]*"/g);
  console.log(name, Object.values(read.resources).map((texts) => texts.de).join(" "), ids);
}
NODE
cat > show.py <<'PYTHON'
from translate.storage.tmx import tmxfile

for name in ("twice", "all", "case", "id"):
    with open(f"{name}.tmx", "rb") as file:
        print(name, *(unit.gettarget("de") for unit in tmxfile(file, "en", "de").units))
PYTHON
node show.mjs > node
venv/bin/python show.py > python
cat node python
cat > seen-node <<'SEEN'
twice richtig null
all links [ 'tuid="7"' ]
case links [ 'tuid="7"' ]
id links rechts null
SEEN
cat > seen-python <<'SEEN'
twice rechts richtig
all links rechts
case links rechts
id links rechts
SEEN
cmp node seen-node
cmp python seen-python
