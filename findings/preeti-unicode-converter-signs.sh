#!/bin/sh
# preeti-unicode-converter 0.1.1 (PyPI): frequent letters of Nepali text in the font Preeti become others, and nothing is said.
# Preeti draws Nepali letters for the codes of Latin ones. Its ऊ is "pm" and its झ "em", which become उफ and भफ: ऊन (wool) is उफन.
# ई, ओ and औ become two letters that look alike: "अ" with the sign ो is no ओ in Unicode, and no dictionary or search has it.
# The sign ि, which stands left of its letter in print, is put behind the first half of a conjunct: प्रिय (dear) becomes पि्रय, and
# क्रिया (verb) कि्रया. Of 24 usual words here, 11 are other ones.
# Its summary is "A highly customizable Python package for converting Preeti font text to Unicode (Nepali)".
# npttf2utf 0.3.7 has the right word for each of the 24. PyMuPDF was 1.26.7 (the package needs it to be imported).
# Most Nepali of newspapers and offices until about 2010 is in this font, and is what a small language's corpus is made of.
# Here: nothing, no command converts encodings of fonts.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet preeti-unicode-converter==0.1.1 npttf2utf==0.3.7 PyMuPDF==1.26.7
"$folder/venv/bin/python" - <<'PYTHON'
from pathlib import Path

import npttf2utf
from preeti_unicode import convert_text

words = dict(
    line.split()
    for line in r"""
cf]v/ ओखर
cf}iflw औषधि
em08f झण्डा
em\ofn झ्याल
pmg ऊन
O{Zj/ ईश्वर
P]gf ऐना
lk|o प्रिय
lqmof क्रिया
lZfIff शिक्षा
ljBfyL{ विद्यार्थी
u|Lid ग्रीष्म
g]kfn नेपाल
lstfa किताब
kfgL पानी
sfd काम
eft भात
km"n फूल
ldq मित्र
k|]d प्रेम
clxn] अहिले
k':ts पुस्तक
/fhg}lts राजनैतिक
lbNnL दिल्ली
""".split("\n") if line
)
mapper = npttf2utf.FontMapper(str(Path(npttf2utf.__file__).parent / "map.json"))
assert all(mapper.map_to_unicode(typed, from_font="Preeti") == word for typed, word in words.items())
found = {word: convert_text(typed) for typed, word in words.items()}
changed = [word for word in found if found[word] != word]
print(len(found), len(changed), *[found[word] for word in changed])
# Seen: 24 11 अोखर आैषधि भफण्डा भफ्याल उफन र्इश्वर एेना पि्रय कि्रया श्िाक्षा विधाथर्ी
assert changed == list(found)[:11], changed
assert [found[word] for word in ("ऊन", "झण्डा", "प्रिय", "क्रिया")] == ["उफन", "भफण्डा", "पि्रय", "कि्रया"]
PYTHON
