#!/bin/sh
# lingua-language-detector 2.1.1: Ukrainian text with both щ and і is Kazakh with confidence 1.0, and Ukrainian with 0.0.
# Seen with all languages. Without Kazakh among the languages, the same text is Ukrainian.
# Here: prepare/rules.py leaves Kazakh out for Ukrainian text.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet lingua-language-detector==2.1.1
"$folder/venv/bin/python" - <<'PYTHON'
from lingua import Language, LanguageDetectorBuilder

text = "Натисніть кнопку, щоб зберегти зміни у файлі."  # Press the button to save the changes in the file.
languages = [Language.UKRAINIAN, Language.RUSSIAN, Language.BULGARIAN]
for name, builder in (
    ("all languages", LanguageDetectorBuilder.from_all_languages()),
    ("three", LanguageDetectorBuilder.from_languages(*languages)),
):
    found = builder.build().compute_language_confidence_values(text)[0]
    print(f"{name}: {found.language.name} {found.value:.1f}")
    # Seen: all languages: KAZAKH 1.0; three: UKRAINIAN 1.0
    assert (found.language.name, round(found.value, 1)) == ("KAZAKH" if name == "all languages" else "UKRAINIAN", 1.0)
PYTHON
