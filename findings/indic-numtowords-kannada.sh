#!/bin/sh
# indic-numtowords 1.1.0: in Kannada, 110, 120 and so on to 190 are all "ನೂ". That is the word for a hundred (ನೂರು) without its
# end, and the ten is lost. 83 has the word of 82. Below 100,000, 7336 numbers have the words of a smaller one.
# In Manipuri, 99 has the words of 89, so that 1990 of these numbers have the words of another.
# Hindi, Bengali, Tamil and Telugu write all of these numbers apart. Nothing is said.
# Numbers that are written out for speech or for alignment then differ from those of the translation.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet indic-numtowords==1.1.0
"$folder/venv/bin/python" - <<'PYTHON'
from indic_numtowords import num2words

for language, number, seen in (
    ("kn", 82, "ಎಂಬತ್ತೆರಡು"),
    ("kn", 83, "ಎಂಬತ್ತೆರಡು"),
    ("kn", 100, "ನೂರು"),
    ("kn", 101, "ನೂರೊಂದು"),
    ("kn", 110, "ನೂ"),
    ("kn", 150, "ನೂ"),
    ("kn", 190, "ನೂ"),
    ("mni", 89, "ꯃꯔꯐꯨ ꯃꯥꯄꯟ"),
    ("mni", 90, "ꯃꯧꯗ꯭ꯔꯥ"),
    ("mni", 99, "ꯃꯔꯐꯨ ꯃꯥꯄꯟ"),
):
    words = num2words(number, lang=language)
    print(language, number, words)
    assert words == seen, words

# Seen: 7336, 1990, then 0 four times
for language, seen in (("kn", 7336), ("mni", 1990), ("hi", 0), ("bn", 0), ("ta", 0), ("te", 0)):
    words = {num2words(number, lang=language) for number in range(100000)}
    print(language, 100000 - len(words))
    assert len(words) == 100000 - seen, language
PYTHON
