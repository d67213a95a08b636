#!/bin/sh
# pynterlinear 0.0.2 (PyPI): words of a gloss in Chinese, Hebrew, Arabic, Hindi or Thai are marked as grammatical abbreviations.
# "dog-NOM" becomes "dog-\gl{nom}", rightly. "犬-NOM" becomes "\gl{犬}-\gl{nom}".
# It takes for an abbreviation what is equal to its upper case. Scripts without case always are. Cyrillic glosses are right.
# `get_unknown_abbrevs` then names the words of the gloss as abbreviations to explain. Nothing is said.
# `get_morphemes` gives one meaning for each form: of "a-ka a-ti", glossed "3SG-go 1SG-say", the "a" of the third person is lost.
# Grammars of languages of Asia are glossed in Chinese, Hindi or Arabic, for their own readers.
# Here: nothing, no command reads glossed text.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pynterlinear==0.0.2
cd "$folder"
cat > show.py <<'PYTHON'
from pynterlinear import get_expex_code, get_morphemes, get_unknown_abbrevs

for gloss in ("dog-NOM", "собака-NOM", "犬-NOM", "כלב-NOM", "كلب-NOM", "कुत्ता-NOM", "หมา-NOM"):  # dog
    print(get_expex_code(gloss))
print(*get_unknown_abbrevs())
print(get_morphemes(id="1", obj=["a-ka", "a-ti"], gloss=["3SG-go", "1SG-say"]))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
dog-\gl{nom}
собака-\gl{nom}
\gl{犬}-\gl{nom}
\gl{כלב}-\gl{nom}
\gl{كلب}-\gl{nom}
\gl{कुत्ता}-\gl{nom}
\gl{หมา}-\gl{nom}
犬 כלב كلب कुत्ता หมา
{'a': '1SG', 'ka': 'go', 'ti': 'say'}
SEEN
cmp shown seen
