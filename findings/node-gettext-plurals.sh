#!/bin/sh
# node-gettext 3.0.1: the plural rule that a catalogue names in `Plural-Forms` is not read. A table of the package chooses.
# In Latvian, the table's first form is for 1, 21 and 31, and its last for 0. A catalogue in CLDR's order has first the form
# for 0 and 10 to 20, then that for 1 and 21, then the rest. Its file is then "1 failu", and its ten files are "10 fails".
# For a language that the table lacks, such as Lower Sorbian, it raises a TypeError that names no language.
# GNU gettext takes the rule of the catalogue, as Python's gettext does for the same file in its .mo form.
# The README names plural forms of 136 languages, and not that a catalogue's own rule counts for nothing.
# Here: nothing, no command reads a catalogue.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund node-gettext@3.0.1 gettext-parser@10.0.0
cat > lv.po <<'PO'
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: lv\n"
"Plural-Forms: nplurals=3; plural=(n % 10 == 0 || n % 100 >= 11 && n % 100 <= 19) ? 0 : "
"((n % 10 == 1 && n % 100 != 11) ? 1 : 2);\n"

msgid "file"
msgid_plural "files"
msgstr[0] "failu"
msgstr[1] "fails"
msgstr[2] "faili"
PO
cat > show.mjs <<'NODE'
import { readFileSync, writeFileSync } from "node:fs";
import { mo, po } from "gettext-parser";
import Gettext from "node-gettext";

const catalogue = po.parse(readFileSync("lv.po"));
writeFileSync("lv.mo", mo.compile(catalogue));
const gettext = new Gettext();
gettext.addTranslations("lv", "messages", catalogue);
gettext.setLocale("lv");
console.log([0, 1, 2, 10, 21].map((number) => `${number} ${gettext.ngettext("file", "files", number)}`).join(", "));
NODE
cat > show.py <<'PYTHON'
from gettext import GNUTranslations

with open("lv.mo", "rb") as catalogue:
    ngettext = GNUTranslations(catalogue).ngettext
print(", ".join(f"{number} {ngettext('file', 'files', number)}" for number in (0, 1, 2, 10, 21)))
PYTHON
node show.mjs > node
python3 show.py > python
cat node python
# Seen: 0 faili, 1 failu, 2 fails, 10 fails, 21 failu
#       0 failu, 1 fails, 2 faili, 10 failu, 21 fails
test "$(cat node)" = "0 faili, 1 failu, 2 fails, 10 fails, 21 failu"
test "$(cat python)" = "0 failu, 1 fails, 2 faili, 10 failu, 21 fails"
