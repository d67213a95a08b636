#!/bin/sh
# arabic-buckwalter-transliteration 1.0.5 (PyPI): two signs of Buckwalter's table stay as they are, and nothing is said.
# ٱ (U+0671) is "{" there, and the small alef ٰ (U+0670) is "`". "ٱلْكِتَاب" (the book) becomes "ٱlokitaAb", half of it Arabic.
# From Buckwalter to Arabic, "h`*aA" (this) keeps its "`" and "{lokitaAb" its "{". Its own text comes back whole, so that no round trip
# shows it.
# ـ (tatweel) is "_" in the table, and the Turkish letter "ı" here.
# Its summary: "convert Arabic text to Buckwalter transliteration and vice versa". lang-trans 0.6.0 has "{lokitaAb" and "h`*aA".
# The Quran has these signs in most verses, and treebanks of Arabic are in Buckwalter's letters.
# Here: nothing, no command transliterates.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet arabic-buckwalter-transliteration==1.0.5 lang-trans==0.6.0
cd "$folder"
cat > show.py <<'PYTHON'
from arabic_buckwalter_transliteration.transliteration import arabic_to_buckwalter, buckwalter_to_arabic
from lang_trans.arabic import buckwalter

for word in ("كِتَابٌ", "ٱلْكِتَاب", "هٰذَا", "بـب"):
    latin = arabic_to_buckwalter(word)
    print(ascii(latin), buckwalter_to_arabic(latin) == word, ascii(buckwalter.transliterate(word)))
for word in ("kitaAbN", "{lokitaAb", "h`*aA"):
    print(word, ascii(buckwalter_to_arabic(word)[:2]), ascii(buckwalter.untransliterate(word)[:2]))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
'kitaAbN' True 'kitaAbN'
'\u0671lokitaAb' True '{lokitaAb'
'h\u0670*aA' True 'h`*aA'
'b\u0131b' True 'b_b'
kitaAbN '\u0643\u0650' '\u0643\u0650'
{lokitaAb '{\u0644' '\u0671\u0644'
h`*aA '\u0647`' '\u0647\u0670'
SEEN
cmp shown seen
