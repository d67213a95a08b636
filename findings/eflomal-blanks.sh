#!/bin/sh
# eflomal 2.0.0: a word ends at each kind of blank, also at those inside a word: no-break (U+00A0, U+202F) and ideographic.
# Its README says that tokens are separated by spaces. French has such a blank in 10 000 and before : and ?.
# So a line of five words is linked as six. Each link after the blank is one too far, and the last names a sixth word.
# Nothing is said, and a reader of Pharaoh links that splits at spaces links other words.
# Here: the aligner is sil-thot's, which takes lists of words. Links of a file that are out of range are refused.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet eflomal==2.0.0 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import random
from pathlib import Path

from eflomal import Aligner

draw = random.Random(0)
words = [f"w{number}" for number in range(20)]
others = [" ".join(draw.choices(words, k=5)) for _ in range(300)]
last = {}
for name, blank in (("none", ""), ("U+00A0", "\u00a0"), ("U+202F", "\u202f"), ("U+3000", "\u3000"), ("U+200B", "\u200b")):
    source = [*others, *[f"w1 10{blank}000 w3 w4 w5"] * 20]
    target = [sentence.upper() for sentence in source]
    Aligner().align(source, target, links_filename_fwd="links")
    links = Path("links").read_text().splitlines()[-1]
    print(name, len(source[-1].split(" ")), "words:", links)
    last[name] = max(int(link.split("-")[0]) for link in links.split())
# Seen: none 5 words: 0-0 1-1 2-2 3-3 4-4
#       U+00A0 5 words: 0-0 1-1 2-2 3-3 4-4 5-5
assert last == {"none": 4, "U+00A0": 5, "U+202F": 5, "U+3000": 5, "U+200B": 4}, last
PYTHON
