#!/bin/sh
# simplemma 2.0.0 (PyPI): Turkish words that begin with a capital "I" get no lemma, and become words that do not exist.
# In Turkish, the small letter of "I" is "ı" and that of "i" is "İ". simplemma lists Turkish, and lowers the first word of a sentence
# as Python does, whatever the language: "Irmaklar" (rivers) becomes "irmaklar", and "Işıklar" (lights) "işıklar".
# Its dictionary has both words with "ı", and "ırmaklar" has its lemma. So a word has another lemma by its place in the sentence.
# Words in capitals have none: "KEDİLER" and "İller" are returned as they are. `is_known` takes them for words of no language, so
# that the share of Turkish in a text, which `in_target_language` measures, is lower than it is.
# Its README says that sentence-initial capitals are lowered before lemmas are looked up.
# Here: nothing, words are compared as a model's tokenizer cuts them.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet simplemma==2.0.0
"$folder/venv/bin/python" - <<'PYTHON'
from simplemma import in_target_language, lemmatize, text_lemmatizer

first = text_lemmatizer("Irmaklar derin.", lang="tr"), text_lemmatizer("Derin ırmaklar.", lang="tr")
single = [lemmatize(word, lang="tr") for word in ("ışıklar", "Işıklar", "iller", "İller", "Kediler", "KEDİLER")]
shares = [in_target_language(text, lang="tr") for text in ("ışıklar ırmaklar iller", "Işıklar Irmaklar İller")]
print(*first, single, shares, sep="\n")
# Seen: ['irmaklar', 'derin', '.']
#       ['derin', 'ırmak', '.']
#       ['ışık', 'Işıklar', 'il', 'İller', 'kedi', 'KEDİLER']
#       [1.0, 0.0]
assert first == (["irmaklar", "derin", "."], ["derin", "ırmak", "."])
assert single == ["ışık", "Işıklar", "il", "İller", "kedi", "KEDİLER"]
assert shares == [1.0, 0.0]
PYTHON
