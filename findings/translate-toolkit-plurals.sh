#!/bin/sh
# translate-toolkit 3.20.4: po2tmx pairs plural forms by their position. A language with one form has its translation of the
# plural beside the English singular: "one file" = "%d 個のファイル". In Russian the first form, of 1, 21 and 31, stands beside
# "one file", although it has the number.
# Here: nothing is done about it. A catalogue has few plurals, so look at them in the TMX file before training.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet translate-toolkit==3.20.4
cd "$folder"
cat > ja.po <<'PO'
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: ja\n"
"Plural-Forms: nplurals=1; plural=0;\n"

msgid "one file"
msgid_plural "%d files"
msgstr[0] "%d 個のファイル"
PO
venv/bin/po2tmx --progress=none -l ja ja.po ja.tmx
venv/bin/python - <<'PYTHON'
import re

segments = re.findall("<seg>(.*?)</seg>", open("ja.tmx", encoding="utf-8").read())
print(segments)
# Seen: ['one file', '%d 個のファイル']
assert segments == ["one file", "%d 個のファイル"]
PYTHON
