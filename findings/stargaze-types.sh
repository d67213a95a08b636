#!/bin/sh
# stargaze 0.0.2 (PyPI): a StarDict dictionary of plain text has no entry but those that begin with "m", without it. Nothing is said.
# With `sametypesequence=m`, the usual form, texts have no letter for their type before them: the specification has it so that
# files are smaller. stargaze looks for an "m" there all the same, and takes it away.
# "Morgen" (morning) is "orning" and "Mutter" is "other". "Hand", and all that begins otherwise, is None, as if it were not there.
# The same entries with `sametypesequence=h`, for HTML, are right.
# Of two entries with one headword, which StarDict allows, only the last is there: "Bank" is the money's, and not the bench.
# pyglossary 4.7.1 reads all five of both files.
# pystardict-synonyms.sh is of another package, which leaves letters of types in the text.
# Here: nothing, data/readers reads no StarDict. Export a dictionary as TSV.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet stargaze==0.0.2 click==8.5.1 python-idzip==0.3.10 pyglossary==4.7.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import logging
import struct
from pathlib import Path

from pyglossary.glossary_v2 import Glossary
from stargaze import Dictionary

logging.disable(logging.WARNING)
entries = [("Bank", "bench"), ("Bank", "bank for money"), ("Hand", "hand"), ("Morgen", "morning"), ("Mutter", "mother")]
Glossary.init()
seen = {
    "m": {"Bank": None, "Hand": None, "Haende": None, "Morgen": "orning", "Mutter": "other"},
    "h": {"Bank": "bank for money", "Hand": "hand", "Haende": "hand", "Morgen": "morning", "Mutter": "mother"},
}
for kind, expected in seen.items():
    index = data = b""
    for word, text in entries:
        index += word.encode() + b"\0" + struct.pack(">II", len(data), len(text))
        data += text.encode()
    Path(kind).mkdir()
    Path(kind, "dictionary.idx").write_bytes(index)
    Path(kind, "dictionary.dict").write_bytes(data)
    Path(kind, "dictionary.syn").write_bytes(b"Haende\0" + struct.pack(">I", 2))
    head = f"StarDict's dict ifo file\nversion=2.4.2\nbookname=Test\nwordcount={len(entries)}\nsynwordcount=1\n"
    options = f"{head}idxfilesize={len(index)}\nsametypesequence={kind}\n"
    Path(kind, "dictionary.ifo").write_text(options, encoding="utf-8")
    dictionary = Dictionary(kind)
    found = {word: dictionary.lookup(word) for word in expected}
    print(kind, found)
    # Seen: m {'Bank': None, 'Hand': None, 'Haende': None, 'Morgen': 'orning', 'Mutter': 'other'}
    #       h {'Bank': 'bank for money', 'Hand': 'hand', 'Haende': 'hand', 'Morgen': 'morning', 'Mutter': 'mother'}
    assert found == expected, found
    glossary = Glossary()
    glossary.directRead(str(Path(kind, "dictionary.ifo")))
    texts = [(entry.l_word[0], entry.defi) for entry in glossary]
    print(len(texts), texts[0], texts[2])
    # Seen: 5 ('Bank', 'bench') ('Hand', 'hand')
    assert texts == entries, texts
PYTHON
