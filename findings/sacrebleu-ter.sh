#!/bin/sh
# sacrebleu 2.6.0 (PyPI): TER without punctuation (no_punct=True) counts the punctuation of most languages as errors. Nothing is said.
# The documentation says "Remove punctuation", and names Chinese and Japanese marks alone as a case of their own (asian_support).
# Removed are . , ? : ; ! " and round brackets, of ASCII alone. So "Yes. No" equals "Yes No" (0), and one edit of two words (50) is
# counted in Hindi, Urdu, Arabic, Armenian, Amharic, Burmese, Spanish, Greek and German, for a full stop, a question mark or a quote.
# asian_support changes Chinese and Japanese alone. So such scores of two languages cannot be compared.
# Here: nothing, no command measures TER.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sacrebleu==2.6.0
"$folder/venv/bin/python" - <<'PYTHON'
from sacrebleu.metrics import TER

texts = {
    "English": ("Yes. No", "Yes No"),
    "Hindi": ("हाँ। नहीं", "हाँ नहीं"),
    "Urdu": ("ہاں۔ نہیں", "ہاں نہیں"),
    "Arabic": ("نعم؟ لا", "نعم لا"),
    "Armenian": ("Այո։ Ոչ", "Այո Ոչ"),
    "Amharic": ("አዎ። አይ", "አዎ አይ"),
    "Burmese": ("ဟုတ်။ မ", "ဟုတ် မ"),
    "Spanish": ("¿Sí? No", "Sí No"),
    "Greek": ("Ναι· όχι", "Ναι όχι"),
    "German": ("„Ja“ Nein", "Ja Nein"),
}
for options in ({"no_punct": True}, {"no_punct": True, "asian_support": True, "normalized": True}):
    scores = {language: TER(**options).sentence_score(marked, [bare]).score for language, (marked, bare) in texts.items()}
    print(scores)
    # Seen: {'English': 0.0, 'Hindi': 50.0, and 50.0 for the others}
    assert scores == {language: 0.0 if language == "English" else 50.0 for language in texts}
PYTHON
