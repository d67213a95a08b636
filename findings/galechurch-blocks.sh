#!/bin/sh
# galechurch 0.1.0 (PyPI): of files with paragraphs, the sentence numbers that it writes are those of other sentences. Nothing is said.
# `align_corpus` aligns each block between blank lines alone, and counts its sentences from 0 each time. The file that it writes has
# no marks of blocks: "[0]:[0]" stands there once for each paragraph, and no line for the sentences after the longest one.
# `calibrate` of the package takes such numbers as those of the whole file, "block boundaries ignored", as its text says. Of a file
# that `align_corpus` wrote, it so takes lengths from the first paragraph alone: a ratio of 1.0 here, where the pairs have 1.25.
# If one side has a paragraph less, the rest of the other side is left out, and its sentences are not counted.
# The README says that "every block of every file" is aligned, and names none of this. Files without blank lines are right,
# and so is `alignment_type="text"` for equal numbers of blocks.
# A corpus that is cut by these numbers has wrong pairs from the second paragraph on.
# Here: nothing, pairs of sentences are read as they stand, line by line.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet galechurch==0.1.0 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from pathlib import Path

from galechurch import align_corpus
from galechurch.calibrate import calibrate

SOURCE = [["a" * 40, "b" * 60, "c" * 50], ["d" * 40, "e" * 60, "f" * 50], ["g" * 30]]
TARGET = [["A" * 42, "B" * 57, "C" * 51], ["D" * 62, "E" * 87, "F" * 76]]
for side, blocks in (("source", SOURCE), ("target", TARGET)):
    Path(side).mkdir()
    Path(side, "one.txt").write_text("\n\n".join("\n".join(block) for block in blocks) + "\n", encoding="utf-8")

[result] = align_corpus("source", "target", "numbers")
[text] = align_corpus("source", "target", "text", alignment_type="text")
found = Path("numbers/one.txt").read_text(encoding="utf-8").split()
print(found, result.source_sentence_count)
# Seen: ['[0]:[0]', '[1]:[1]', '[2]:[2]', '[0]:[0]', '[1]:[1]', '[2]:[2]'] 6
assert found == ["[0]:[0]", "[1]:[1]", "[2]:[2]"] * 2
assert (result.source_sentence_count, sum(map(len, SOURCE))) == (6, 7)
pairs = [line.split("\t") for line in text.lines]
print([source[0] + target[0] for source, target in pairs])
# Seen: ['aA', 'bB', 'cC', 'dD', 'eE', 'fF']
assert [source[0] + target[0] for source, target in pairs] == ["aA", "bB", "cC", "dD", "eE", "fF"]

Path("right.txt").write_text("".join(f"[{number}]:[{number}]\n" for number in range(6)), encoding="utf-8")
files = ("numbers/one.txt", "right.txt")
ratios = [round(calibrate("source/one.txt", "target/one.txt", name).mean_xy, 2) for name in files]
print(*ratios)
# Seen: 1.0 1.25
assert ratios == [1.0, 1.25]
PYTHON
