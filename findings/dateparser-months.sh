#!/bin/sh
# dateparser 1.5.0 (PyPI): dates of June in Punjabi are read as dates of January, and nothing is said.
# "23 ਜੂਨ 2019" is 2019-01-23, with the language named or found, and is the month's long and short name in CLDR.
# In Burmese it is the other way: January's short name ဇန် is read as June. In Tibetan, June's ཟླ་བ་དྲུག་པ is September.
# Thai มี.ค. (March) is read as January. In Jola-Fonyi (dyo), July's Sú is June.
# Babel 2.19.0 wrote the dates with CLDR's data. Of all other languages that both know, no month was read as another.
# So dates of a text and of its translation differ by months, or match where they should not.
# The documentation lists these languages as supported.
# Known in part: issue 588 of dateparser is of Thai, and asks for its years.
# Here: nothing, no command reads dates.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dateparser==1.5.0 Babel==2.19.0
"$folder/venv/bin/python" - > "$folder/shown" <<'PYTHON'
import warnings
from datetime import date

import dateparser
from babel.dates import format_date

warnings.filterwarnings("ignore")
for language in "pa", "my", "bo", "th", "dyo", "hi", "km", "lo", "ta", "sw", "de", "ru":
    wrong = []
    for month in range(1, 13):
        day = date(2019, month, 23)
        for form in "d MMM y", "d MMMM y":
            text = format_date(day, form, locale=language)
            read = dateparser.parse(text, languages=[language])
            if read and read.date() != day:
                wrong.append(f"{text} -> {read:%Y-%m-%d}")
    print(language, *wrong, sep=" | ")
PYTHON
cat "$folder/shown"
cat > "$folder/seen" <<'SEEN'
pa | 23 ਜੂਨ 2019 -> 2019-01-23 | 23 ਜੂਨ 2019 -> 2019-01-23
my | 23 ဇန် 2019 -> 2019-06-23
bo | 23 ཟླ་བ་དྲུག་པ 2019 -> 2019-09-23
th | 23 มี.ค. 2019 -> 2019-01-23
dyo | 23 Sú 2019 -> 2019-06-23
hi
km
lo
ta
sw
de
ru
SEEN
cmp "$folder/shown" "$folder/seen"
