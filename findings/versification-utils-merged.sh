#!/bin/sh
# versification-utils 0.0.1 (PyPI): `remap_verses` loses the text of a verse that has the place of another in the new numbering.
# Bibles number verses in several ways. In English ones, Psalm 13 has two verses where Hebrew ones have one, 13:6.
# Both get this number, and the second text is written over the first. So it is with three verses on the way from "eng" to "org".
# From "org" to "eng" it is seven, among them half of the titles of Psalms 51, 52, 54 and 60.
# From English numbers to those of the Vulgate it is 28, and to those of the Septuagint 80.
# `to_vref`, which writes the lines of a corpus, calls it. Nothing is said.
# sil-machine 1.9.2, which aligns Bibles of two numberings, puts both English verses beside the Hebrew one.
# A translation that has only the half of a verse is a wrong pair, and no length or score shows it.
# The package also imports yaml, which it does not require.
# Here: nothing, verses are read as they are numbered.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet versification-utils==0.0.1 sil-machine==1.9.2 pyyaml==6.0.3
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from pathlib import Path

from machine.corpora import UsfmFileTextCorpus
from machine.scripture import ENGLISH_VERSIFICATION, ORIGINAL_VERSIFICATION, canon
from versification_utils import remap_verses

psalm = {"PSA 13:5": "But I trust in your love.", "PSA 13:6": "I will sing to the Lord."}
found = remap_verses(psalm, "eng", "org")
print(found)
# Seen: {'PSA 13:6': 'I will sing to the Lord.'}
assert found == {"PSA 13:6": "I will sing to the Lord."}

bibles = []
for name, numbering, verses in (
    ("hebrew", ORIGINAL_VERSIFICATION, {6: "five and six"}),
    ("english", ENGLISH_VERSIFICATION, {5: "five", 6: "six"}),
):
    lines = [f"\\v {verse} {text}" for verse, text in verses.items()]
    Path(name).mkdir()
    Path(name, "19PSA.SFM").write_text("\n".join(["\\id PSA", "\\c 13", "\\p", *lines, ""]), encoding="utf-8")
    bibles.append(UsfmFileTextCorpus(name, versification=numbering))
rows = [(row.source_text, row.target_text) for row in bibles[0].align_rows(bibles[1])]
print(rows)
# Seen: [('five and six', 'five six')]
assert rows == [("five and six", "five six")], rows

counts = {}
for source, target, numbering in (
    ("eng", "org", ENGLISH_VERSIFICATION),
    ("org", "eng", ORIGINAL_VERSIFICATION),
    ("eng", "vul", ENGLISH_VERSIFICATION),
    ("eng", "lxx", ENGLISH_VERSIFICATION),
):
    verses = {}
    for book in range(1, 67):
        for chapter in range(1, numbering.get_last_chapter(book) + 1):
            for verse in range(1, numbering.get_last_verse(book, chapter) + 1):
                name = f"{canon.book_number_to_id(book)} {chapter}:{verse}"
                verses[name] = name
    kept = set(remap_verses(verses, source, target).values())
    lost = [name for name in verses if name not in kept]
    counts[source, target] = len(lost)
    print(source, target, len(verses), len(lost), *lost[:7])
# Seen: eng org 31104 3 NEH 7:68 PSA 13:5 ISA 64:1
#       org eng 31170 7 ...
assert counts == {("eng", "org"): 3, ("org", "eng"): 7, ("eng", "vul"): 28, ("eng", "lxx"): 80}, counts
PYTHON
