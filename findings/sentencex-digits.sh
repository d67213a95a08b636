#!/bin/sh
# sentencex 1.0.32 (PyPI) and 1.0.17 (npm): a decimal number in digits of another script than ASCII's is cut into two sentences.
# In Bengali, "দাম ৩.৫ টাকা।" (the price is 3.5 taka) becomes "দাম ৩." and "৫ টাকা।". With "3.5" it stays one sentence.
# So it is in Hindi, Marathi, Nepali, Gujarati, Tamil, Burmese, Persian and Arabic. A date with full stops becomes three sentences.
# The pieces of a text and of its translation are then unequal in number, and sentences are aligned with others.
# Its summary names about 300 languages.
# pysbd 0.3.4 keeps the Hindi, Marathi, Burmese, Persian and Arabic numbers whole.
# Here: sentences are read one a line, and never split.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sentencex==1.0.32 pysbd==0.3.4
cd "$folder"
npm install --silent --no-audit --no-fund sentencex@1.0.17
cat > show.py <<'PYTHON'
from pysbd import Segmenter
from sentencex import segment

print(list(segment("bn", "দাম ৩.৫ টাকা।")), list(segment("bn", "দাম 3.5 টাকা।")))
for language, number, date in (
    ("hi", "३.५", "१.२.२०२४"),
    ("mr", "३.५", "१.२.२०२४"),
    ("ne", "३.५", "१.२.२०२४"),
    ("gu", "૩.૫", "૧.૨.૨૦૨૪"),
    ("ta", "௩.௫", "௧.௨.௨௦௨௪"),
    ("my", "၃.၅", "၁.၂.၂၀၂၄"),
    ("fa", "۳.۵", "۱.۲.۲۰۲۴"),
    ("ar", "٣.٥", "١.٢.٢٠٢٤"),
):
    counts = [len(list(segment(language, f"x {text} y"))) for text in (number, date, "3.5", "1.2.2024")]
    if language in ("hi", "mr", "my", "fa", "ar"):
        counts.append(len(Segmenter(language=language, clean=False).segment(f"x {number} y")))
    print(language, *counts)
PYTHON
cat > show.mjs <<'NODE'
import { segment } from "sentencex";

console.log(segment("bn", "দাম ৩.৫ টাকা।"), segment("bn", "দাম 3.5 টাকা।"));
NODE
venv/bin/python show.py > shown
node show.mjs >> shown
cat shown
cat > seen <<'SEEN'
['দাম ৩.', '৫ টাকা।'] ['দাম 3.5 টাকা।']
hi 2 3 1 1 1
mr 2 3 1 1 1
ne 2 3 1 1
gu 2 3 1 1
ta 2 3 1 1
my 2 3 1 1 1
fa 2 3 1 1 1
ar 2 3 1 1 1
[ 'দাম ৩.', '৫ টাকা।' ] [ 'দাম 3.5 টাকা।' ]
SEEN
cmp shown seen
