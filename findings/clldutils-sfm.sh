#!/bin/sh
# clldutils 4.0.0 (PyPI): a Toolbox dictionary whose path is a text is read as empty, and then written as an empty file.
# `SFM.from_file("lexicon.sfm")` takes the path for the content. No line of it has a marker, so that there is no entry.
# With a `pathlib.Path` the entries are read. The types of the signature allow both, as in the other functions of the package.
# The documentation of the class reads a file, renames its markers and writes it to the same name. With a text as name, all is lost.
# Nothing is said. It is so in 3.24.4 as well.
# Toolbox files are what many dictionaries of small languages exist in, and these are the seeds of an alignment.
# Here: nothing, data/readers reads no Toolbox. data/marks.tsv names its lines as markup.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet clldutils==4.0.0
cd "$folder"
cat > lexicon.sfm <<'SFM'
\lx soma
\ge read

\lx andika
\ge write
SFM
"$folder/venv/bin/python" - <<'PYTHON'
from pathlib import Path
from typing import get_type_hints

from clldutils.sfm import SFM

path = "lexicon.sfm"
read = {kind.__name__: SFM.from_file(kind(path)) for kind in (str, Path)}
print({name: [entry.get("lx") for entry in entries] for name, entries in read.items()}, get_type_hints(SFM.from_file))
# Seen, before the types: {'str': [], 'Path': ['soma', 'andika']}
assert [[entry.get("lx") for entry in entries] for entries in read.values()] == [[], ["soma", "andika"]]
assert str in get_type_hints(SFM.from_file)["filename"].__args__

lexicon = SFM.from_file(path, marker_map={"ge": "gloss"})
lexicon.write(path)
print([Path(path).read_text(encoding="utf-8")])
# Seen: ['']
assert Path(path).read_text(encoding="utf-8") == ""
PYTHON
