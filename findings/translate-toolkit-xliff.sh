#!/bin/sh
# translate-toolkit 3.20.4: xliff2po marks a unit as fuzzy unless it says approved="yes", also one whose target is in the state
# "final", and po2tmx leaves out what is fuzzy. XLIFF of tools that never write `approved` becomes an empty TMX file, without
# a word and with exit status 0. po2csv keeps all units.
# Here: data/forms.py names xliff2po and po2csv for XLIFF, and po2tmx for gettext alone.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet translate-toolkit==3.20.4
cd "$folder"
cat > app.xlf <<'XLIFF'
<?xml version="1.0" encoding="utf-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="app" source-language="en" target-language="de" datatype="plaintext"><body>
<trans-unit id="1"><source>Open file</source><target state="final">Datei öffnen</target></trans-unit>
<trans-unit id="2"><source>Save all</source><target state="translated">Alle speichern</target></trans-unit>
</body></file></xliff>
XLIFF
venv/bin/xliff2po --progress=none app.xlf app.po
venv/bin/po2tmx --progress=none -l de app.po app.tmx
venv/bin/po2csv --progress=none app.po app.csv
units=$(grep -c '<tu' app.tmx || true)
echo "$units units in TMX, $(grep -c 'Datei öffnen\|Alle speichern' app.csv) in CSV"
# Seen: 0 units in TMX, 2 in CSV
test "$units" = 0
test "$(grep -c 'Datei öffnen\|Alle speichern' app.csv)" = 2
