#!/bin/sh
# translate-toolkit 3.20.4, and i18n-strings-files 2.0.0 and strings-file 0.0.5 of npm: a comment behind an entry of an Apple
# .strings file costs an entry, and nothing is said: "save" = "Speichern"; // in the menu
# The first two read on to the end of the next entry. That is gone, and the text of "save" has its code in it.
# The third leaves out the entry before the comment. Those with an empty text it leaves out too, and takes those inside /* */.
# So a translation memory of the file has code as a translation, and lacks sentences.
# The second and third also leave "\U00d6" as it is, which is Ö in such a file.
# openstep-plist 0.5.2 reads the same entries rightly: a .strings file is such a list without its braces.
# Known in part: issue 17259 of Weblate is of comments in /* */, which translate-toolkit reads since.
# Here: nothing, no command reads .strings files.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet translate-toolkit==3.20.4 openstep-plist==0.5.2
cd "$folder"
npm install --silent --no-audit --no-fund i18n-strings-files@2.0.0 strings-file@0.0.5
cat > app.strings <<'STRINGS'
/*
  "cancel" = "Abbrechen";
*/
"save" = "Speichern"; // in the menu
"open" = "\U00d6ffnen";
"quit" = "";
STRINGS
cat > show.cjs <<'NODE'
const text = require("fs").readFileSync("app.strings", "utf8");
for (const name of ["i18n-strings-files", "strings-file"]) console.log(JSON.stringify(require(name).parse(text)));
NODE
cat > show.py <<'PYTHON'
import json
from pathlib import Path

import openstep_plist
from translate.storage.properties import stringsutf8file

units = stringsutf8file.parsefile("app.strings").units
print(json.dumps({unit.name: unit.source for unit in units}, ensure_ascii=False))
entries = openstep_plist.loads("{" + Path("app.strings").read_text(encoding="utf-8") + "}")
print(json.dumps(entries, ensure_ascii=False))
PYTHON
venv/bin/python show.py > shown
node show.cjs >> shown
cat shown
cat > seen <<'SEEN'
{"save": "Speichern\"; // in the menu\"open\" = \"Öffnen", "quit": ""}
{"save": "Speichern", "open": "Öffnen", "quit": ""}
{"save":"Speichern\"; // in the menu\n\"open\" = \"\\U00d6ffnen","quit":""}
{"  \"cancel\" ":"Abbrechen","open":"\\U00d6ffnen"}
SEEN
cmp shown seen
