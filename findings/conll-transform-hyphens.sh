#!/bin/sh
# conll-transform 0.1.0 (PyPI): documents with a hyphen in their name are read as empty, and an option has no effect. Nothing is said.
# In the form of the CoNLL-2011 and 2012 shared tasks (coreference), the first column of a line is the document's name. `read_file` has
# the option `ignore_double_indices`, the column whose cells with "-" are left out. It is False by default, as for none. But Python's False
# is the number 0, so that the first column is looked at. Of "de-news/01", all words are lost, and with them all mentions.
# `remove_singletons` then writes a file without words. ignore_double_indices=-1 reads all.
# `write_mentions` has the option `append`: a new column, or else the last one is replaced. A function in it has the same name, so that
# a column is added in any case. Read again, the mentions are of the new last column, and each call adds another.
# Here: nothing, no reader has coreference.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet conll-transform==0.1.0
cd "$folder"
venv/bin/python - <<'PYTHON'
from pathlib import Path

from conll_transform import read_file, remove_singletons, write_mentions

counts = []
for name in ("news/01", "de-news/01"):
    words = [("Anna", "(1)"), ("sah", "-"), ("Anna", "(1)")]
    lines = [f"{name} 0 {place} {word} N {mention}" for place, (word, mention) in enumerate(words)]
    Path("in.conll").write_text("\n".join([f"#begin document ({name}); part 000", *lines, "", "#end document"]) + "\n")
    remove_singletons("in.conll", "out.conll")
    counts.append([
        sum(map(len, read_file("in.conll")[f"({name}); part 000"])),
        Path("out.conll").read_text().count("Anna"),
        sum(map(len, read_file("in.conll", ignore_double_indices=-1)[f"({name}); part 000"])),
    ])
sentence = [["Anna", "-"], ["sah", "-"]]
write_mentions(sentence, [((0, 1), 7)], append=False)
print(counts, sentence)
# Seen: [[3, 2, 3], [0, 0, 3]] [['Anna', '-', '(7)'], ['sah', '-', '*']]
assert counts == [[3, 2, 3], [0, 0, 3]]
assert sentence == [["Anna", "-", "(7)"], ["sah", "-", "*"]]
PYTHON
