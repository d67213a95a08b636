#!/bin/sh
# ce-translit 1.0.1 (PyPI): one Chechen word gets two spellings in Latin letters, by the mark that stands next to it.
# The README has two rules: final "н" becomes "ŋ", and "е" at the start of a word becomes "ye". Here a word is what stands between
# blanks, its marks with it. So "нохчийн" is "noxçiyŋ", and "нохчийн." or "нохчийн," is "noxçiyn". "елар" is "yelar", and "«елар" "«elar".
# The last word of each sentence, and each word in quotation marks, is another than inside the sentence.
# Line breaks become blanks: a text of three lines, or a verse, is one line.
# Nothing is said. The README has the example "Нохчийн мотт", without a mark.
# A dictionary of such a text has two entries for a word, and lines that were parallel are not.
# Here: nothing, no command romanizes. Transliterate line by line, and without marks.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ce-translit==1.0.1
"$folder/venv/bin/python" - <<'PYTHON'
from ce_translit import transliterate

seen = {
    "Нохчийн мотт": "Noxçiyŋ mott",
    "Мотт нохчийн.": "Mott noxçiyn.",
    "Нохчийн, мотт": "Noxçiyn, mott",
    "елар": "yelar",
    "«елар»": "«elar»",
    "Муха ду хьал де?\nДика ду.\n": "Muxa du ẋal de? Dika du.",
}
for text, expected in seen.items():
    found = transliterate(text)
    print([text, found])
    # Seen: 'Noxçiyŋ mott', 'Mott noxçiyn.', 'Noxçiyn, mott', 'yelar', '«elar»', 'Muxa du ẋal de? Dika du.'
    assert found == expected, found
PYTHON
