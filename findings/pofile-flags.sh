#!/bin/sh
# pofile 1.1.4 (npm): the blank before a second flag becomes part of its name. After "#, c-format, fuzzy", `flags.fuzzy` is
# not set, although its README says to look there. So an unchecked translation counts as a checked one, and nothing is said.
# GNU gettext's tools write "fuzzy" first, where it is found, and "c-format" is not. gettext reads the flags in any order.
# An obsolete entry takes the line after it for a part of its text, if that says what a later one was before ("#~| msgid"),
# as msgmerge --previous writes: "alt" becomes "alto".
# polib 1.2.0 reads the same catalogue rightly.
# Here: nothing, no command reads a catalogue.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet polib==1.2.0
cd "$folder"
npm install --silent --no-audit --no-fund pofile@1.1.4
cat > de.po <<'PO'
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"

#, c-format, fuzzy
msgid "%d files"
msgstr "%d Datei"

#~ msgid "old"
#~ msgstr "alt"

#~| msgid "o"
#~ msgid "young"
#~ msgstr "jung"
PO
cat > show.cjs <<'NODE'
const { items } = require("pofile").parse(require("fs").readFileSync("de.po", "utf8"));
console.log(JSON.stringify([items[0].flags, ...items.map(({ flags, msgstr }) => [Boolean(flags.fuzzy), ...msgstr])]));
NODE
cat > show.py <<'PYTHON'
import json

import polib

catalogue = polib.pofile("de.po")
print(json.dumps([catalogue[0].flags, *([entry.fuzzy, entry.msgstr] for entry in catalogue)]))
PYTHON
node show.cjs > node
venv/bin/python show.py > python
cat node python
# Seen: [{"c-format":true," fuzzy":true},[false,"%d Datei"],[false,"alto"],[false,"jung"]]
#       [["c-format", "fuzzy"], [true, "%d Datei"], [false, "alt"], [false, "jung"]]
test "$(cat node)" = '[{"c-format":true," fuzzy":true},[false,"%d Datei"],[false,"alto"],[false,"jung"]]'
test "$(cat python)" = '[["c-format", "fuzzy"], [true, "%d Datei"], [false, "alt"], [false, "jung"]]'
