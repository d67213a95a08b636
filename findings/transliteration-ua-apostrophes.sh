#!/bin/sh
# transliteration-ua 0.2.0 (PyPI): a word with ’ (U+2019), the apostrophe of printed Ukrainian, is transliterated as two words.
# "м’ята" (mint) becomes "m’yata". The rules that it names, resolution 55 of 2010, leave the apostrophe out: "miata". With "'", it is right.
# The letter behind ’ has the form of a word's first letter, and ’ stays. So it is with ʼ (U+02BC), Unicode's letter for it.
# In "'Юрій'", "'" is a quotation mark. It is left out, and Ю is not taken for the first letter: "Iurii", where "Yurii" is right.
# Nothing is said. Its README: "Words with an apostrophe are also handled".
# uklatn 1.20.0 has "miata" for ’, and "'Yurii'". translitua 2.0 has "miata" for all three.
# Names from two sources, one typed and one printed, so become two names.
# Here: nothing, no command transliterates.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet transliteration-ua==0.2.0 uklatn==1.20.0 translitua==2.0
cd "$folder"
cat > show.py <<'PYTHON'
import uklatn
from translitua import UkrainianKMU, translit
from transliteration_ua import transliterate_ua

for word in ("м'ята", "м’ята", "м\u02bcята", "'Юрій'", "«Юрій»"):
    print(word, transliterate_ua(word), uklatn.encode(word, table=uklatn.KMU_55), translit(word, UkrainianKMU))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
м'ята miata miata miata
м’ята m’yata miata miata
мʼята mʼyata mʼiata miata
'Юрій' Iurii 'Yurii' Yurii
«Юрій» «Yurii» «Yurii» «Yurii»
SEEN
cmp shown seen
