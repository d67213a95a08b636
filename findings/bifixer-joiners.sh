#!/bin/sh
# bifixer 0.8.12 (PyPI): a word with a joiner or non-joiner in it becomes two words, and nothing is said.
# Unicode has U+200C and U+200D for the shape of letters inside a word, and counts neither as a blank.
# Persian می‌خواهم (I want) is one word with a non-joiner, and becomes "می خواهم". So do کتاب‌ها (the books) and words of Sorani.
# Sinhala ශ්‍රී (Sri, as in Sri Lanka) becomes "ශ් රී", and Nepali गर्‍यो (did) and Marathi दर्‍या (valleys) are cut too.
# What is left ends in a virama, and looks otherwise on a screen. With the same letters without a joiner, nothing changes.
# "x < 5 and y > 3" becomes "x 3", as if the rest were a tag.
# So a corpus has pieces that no dictionary knows, and the lengths and links of its sentences are others.
# bifixer cleans the corpora of Bitextor and ParaCrawl. Its help says that spaces are normalized and tags of HTML removed.
# Here: prepare/rules.py keeps both characters.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet bifixer==0.8.12
cd "$folder"
"$folder/venv/bin/python" - > shown <<'PYTHON'
import subprocess
from pathlib import Path

for language, text in (
    ("fa", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
    ("fa", "\u06a9\u062a\u0627\u0628\u200c\u0647\u0627"),
    ("ckb", "\u062f\u0647\u200c\u0646\u06af"),
    ("si", "\u0dc1\u0dca\u200d\u0dbb\u0dd3"),
    ("ne", "\u0917\u0930\u094d\u200d\u092f\u094b"),
    ("mr", "\u0926\u0930\u094d\u200d\u092f\u093e"),
    ("ne", "\u0917\u0930\u094d\u092f\u094b"),
    ("en", "x < 5 and y > 3"),
):
    Path("pairs").write_text(f"u\tu\t{text}\tHello, world.\n", "utf-8")
    command = ["venv/bin/bifixer", "-q", "--ignore_duplicates", "--ignore_segmentation", "pairs", "fixed", language, "en"]
    subprocess.run(command, check=True)
    print(language, ascii(Path("fixed").read_text("utf-8").split("\t")[2]))
PYTHON
cat shown
cat > seen <<'SEEN'
fa '\u0645\u06cc \u062e\u0648\u0627\u0647\u0645'
fa '\u06a9\u062a\u0627\u0628 \u0647\u0627'
ckb '\u062f\u0647 \u0646\u06af'
si '\u0dc1\u0dca \u0dbb\u0dd3'
ne '\u0917\u0930\u094d \u092f\u094b'
mr '\u0926\u0930\u094d \u092f\u093e'
ne '\u0917\u0930\u094d\u092f\u094b'
en 'x 3'
SEEN
cmp shown seen
