#!/bin/sh
# sacremoses 0.2.0: MosesPunctNormalizer makes another number of one that is grouped by no-break spaces (U+00A0).
# CLDR groups numbers so in Russian, Finnish and Polish, and French text often has it too: 10 000 is ten thousand.
# In French, German and Spanish it becomes "10,000", which is ten there, as the comma is their decimal sign.
# In English and all other languages that were tried it becomes "10.000", which is ten in English.
# A year before another number, as in "2024 12", becomes "2024.12".
# With a usual space or a narrow one (U+202F), the same number stays as it is. Nothing is said.
# So parallel text has ten on one side and ten thousand on the other, and a filter of numbers drops the pair.
# The rule is that of Moses, at the end of its normalize-punctuation.perl. The README of sacremoses does not name it.
# Here: nothing, prepare/rules.py writes a usual space for a no-break one.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sacremoses==0.2.0
"$folder/venv/bin/python" - > "$folder/shown" <<'PYTHON'
from sacremoses import MosesPunctNormalizer

for language in "fr", "de", "es", "en", "ru", "fi", "pl":
    normalize = MosesPunctNormalizer(lang=language).normalize
    texts = "10\u00a0000", "2\u00a0100\u00a0000", "2024\u00a012", "10 000", "10\u202f000"
    print(language, *(ascii(normalize(text)) for text in texts))
PYTHON
cat "$folder/shown"
cat > "$folder/seen" <<'SEEN'
fr '10,000' '2,100,000' '2024,12' '10 000' '10\u202f000'
de '10,000' '2,100,000' '2024,12' '10 000' '10\u202f000'
es '10,000' '2,100,000' '2024,12' '10 000' '10\u202f000'
en '10.000' '2.100.000' '2024.12' '10 000' '10\u202f000'
ru '10.000' '2.100.000' '2024.12' '10 000' '10\u202f000'
fi '10.000' '2.100.000' '2024.12' '10 000' '10\u202f000'
pl '10.000' '2.100.000' '2024.12' '10 000' '10\u202f000'
SEEN
cmp "$folder/shown" "$folder/seen"
