#!/bin/sh
# compute-wer 0.2.5 (PyPI): in Hindi and other scripts with vowel signs, wrong words count as right, and nothing is said.
# A word ends at each vowel sign, and the sign is left out. दिन (day) and दान (gift) are both the two words "द" and "न", with a
# rate of 0. Of "लड़का गया" (the boy went), "लड़की गयी" (the girl went) is 0% off, where jiwer 4.0.0 has 100%.
# The number of words is another too: "मैं किताब पढ़ता हूँ" has 4 words, and counts as 7. So it is with Bengali, and with Latin
# letters that are written as a letter and a mark: "naïve" is "nai" and "ve" then.
# `remove_tag=True`, in the README for "tagged text", removes no tag: text is cut at "<" and ">" before tags are looked for.
# So "<laugh>" is three words, or the word "laugh" if punctuation is ignored.
# English words are counted rightly, and Thai by its characters.
# Scores of speech recognition and translation in these languages are then too good, and those of languages cannot be compared.
# Here: nothing, no command has a word error rate.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet compute-wer==0.2.5 jiwer==4.0.0
"$folder/venv/bin/python" - <<'PYTHON'
import jiwer
from compute_wer import Calculator

seen = {
    ("दिन", "दान"): (0.0, 2, 1.0),
    ("लड़का गया", "लड़की गयी"): (0.0, 3, 1.0),
    ("मैं किताब पढ़ता हूँ", "मैं किताब पढ़ता हूँ"): (0.0, 7, 0.0),
    ("দিন", "দান"): (0.0, 2, 1.0),
    ("so nai\u0308ve", "so nai ve"): (0.0, 3, 1.0),
    ("the day", "the bay"): (0.5, 2, 0.5),
    ("เขามา", "เขาไป"): (0.4, 5, 1.0),
}
for (reference, other), expected in seen.items():
    score = Calculator().calculate(reference, other)
    found = score.wer, score.all, jiwer.wer(reference, other)
    print(reference, "|", other, *found)
    assert found == expected, (reference, found)

for options in ({}, {"ignore_punctuation": True}):
    score = Calculator(remove_tag=True, **options).calculate("<laugh> good morning", "good morning")
    print(options, score.all, [word.strip() for word in score.reference])
    # Seen: {} 5 ['<', 'LAUGH', '>', 'GOOD', 'MORNING']
    #       {'ignore_punctuation': True} 3 ['LAUGH', 'GOOD', 'MORNING']
    assert score.all == (3 if options else 5) and score.wer > 0
PYTHON
