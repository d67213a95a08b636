#!/bin/sh
# devwer 0.0.3 (PyPI): the word error rate of a sentence is that of its runs of wrong words, and not of its words. Nothing is said.
# Words that are wrong next to each other are one error, however many they are: a sentence of four words without a right one has
# 0.25, and the longer it is, the lower is the rate. A rate of 1.0 needs a sentence of one word.
# `wer_legacy` of the package counts words, as jiwer 4.0.0 does: 1.0.
# Short and long vowels of Hindi and Nepali (दिन, day, and दीन, poor) are one before both rates are counted, by word and by character.
# The README calls it a tool for "calculating Word Error Rate (WER) in Devanagari script", and its text says the "WER as a float".
# Scores of transcripts and translations in Hindi, Nepali or Marathi so look better than others, and best where all is wrong.
# Here: nothing, no command has a word error rate.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet devwer==0.0.3 jiwer==4.0.0
"$folder/venv/bin/python" - <<'PYTHON'
import jiwer
from devwer import Metrics

metrics = Metrics()
seen = {
    ("म भोलि घर जान्छु", "हामी सबै बजार गयौं"): (0.25, 1.0, 1.0),
    ("म भोलि घर जान्छु", "म आज स्कुल जान्छु"): (0.25, 0.5, 0.5),
    ("राम घर गयो", "सीता स्कुल आइन्"): (1 / 3, 1.0, 1.0),
    ("म भोलि घर जान्छु", "म भोलि घर जान्छु"): (0.0, 0.0, 0.0),
    ("दिन", "दीन"): (0.0, 0.0, 1.0),
}
for (reference, other), expected in seen.items():
    found = metrics.wer(reference, other), metrics.wer_legacy(reference, other), jiwer.wer(reference, other)
    print(reference, "|", other, *[round(rate, 2) for rate in found])
    # Seen: 0.25 1.0 1.0, 0.25 0.5 0.5, 0.33 1.0 1.0, 0.0 0.0 0.0, 0.0 0.0 1.0
    assert found == expected, found
assert metrics.cer("दिन", "दीन") == 0.0
PYTHON
