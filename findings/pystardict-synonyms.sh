#!/bin/sh
# pystardict 0.9 (PyPI): a StarDict dictionary without `sametypesequence` is read with its marks of types in the text.
# In this form each text begins with a letter for its type and ends in a zero byte. "Haus" is read as "mHaus\0".
# If a word has a pronunciation and a meaning, both are one text: "ttʃaɪld\0mKind\0". The form requires no such option.
# The words of the file .syn, which are inflected forms in WikDict's dictionaries ("children", for "child"), are not there.
# After a look at a word that the dictionary does not have, it has it: `in` is True then, and `keys` lists the word. Its text is "".
# So a dictionary for alignment has "mHaus" as the word for "house", lacks inflected words, and has entries that are empty.
# Nothing is said. pyglossary 4.7.1 reads both dictionaries rightly.
# Known in part: issue 7 of pystardict is of .syn files, and was opened in 2017.
# Here: nothing, data/readers reads no StarDict. Export a dictionary as TSV.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pystardict==0.9 pyglossary==4.7.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import struct
from pathlib import Path

from pyglossary.glossary_v2 import Glossary
from pystardict import Dictionary


def write(name, entries, options="", synonyms=()):
    index = data = b""
    for word, text in sorted(entries.items()):
        index += word.encode() + b"\0" + struct.pack(">II", len(data), len(text))
        data += text
    Path(f"{name}.idx").write_bytes(index)
    Path(f"{name}.dict").write_bytes(data)
    if synonyms:
        Path(f"{name}.syn").write_bytes(b"".join(word.encode() + b"\0" + struct.pack(">I", at) for word, at in synonyms))
        options += f"synwordcount={len(synonyms)}\n"
    head = f"StarDict's dict ifo file\nversion=2.4.2\nbookname=Test\nwordcount={len(entries)}\n"
    Path(f"{name}.ifo").write_text(f"{head}idxfilesize={len(index)}\n{options}", encoding="utf-8")


write("types", {"house": b"mHaus\0", "child": "ttʃaɪld\0mKind\0".encode()})
write("plain", {"house": b"Haus", "child": b"Kind"}, "sametypesequence=m\n", [("children", 0)])
types, plain = Dictionary("types", in_memory=True), Dictionary("plain", in_memory=True)
print([types["house"], types["child"], plain["house"], plain.get("children")])
# Seen: ['mHaus\x00', 'ttʃaɪld\x00mKind\x00', 'Haus', '']
assert [types["house"], types["child"], plain["house"], plain.get("children")] == ["mHaus\0", "ttʃaɪld\0mKind\0", "Haus", ""]
before, text, after = "tree" in plain, plain["tree"], "tree" in plain
print(before, [text], after, list(plain.keys()))
# Seen: False [''] True ['child', 'house', 'tree']
assert (before, text, after, list(plain.keys())) == (False, "", True, ["child", "house", "tree"])

Glossary.init()
for name in ("types", "plain"):
    glossary = Glossary()
    glossary.directRead(f"{name}.ifo")
    found = [(entry.l_word, entry.defi) for entry in glossary]
    print(name, found)
    child = (["child"], "tʃaɪld\nKind") if name == "types" else (["child", "children"], "Kind")
    # Seen: types [(['child'], 'tʃaɪld\nKind'), (['house'], 'Haus')]
    #       plain [(['child', 'children'], 'Kind'), (['house'], 'Haus')]
    assert found == [child, (["house"], "Haus")], found
PYTHON
