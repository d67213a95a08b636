#!/bin/sh
# arrow 1.4.0: `get` reads a Thai or Lao date that `format` wrote in the same language as one 543 years later.
# Thailand and Laos count years from the Buddha's death: 2024 is 2567. `format` writes "11 มกราคม 2567" for 11 January 2024.
# `get` of this text with the same form and locale is 11 January 2567. Nothing is said.
# So dates of Thai text lie in the 26th century, and no date of its translation is the same.
# The locale has a function for the year that `format` calls, and none for the way back. The documentation names no era.
# All of arrow's other languages come back as they were, in long month names.
# Here: nothing, no command reads dates.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet arrow==1.4.0
"$folder/venv/bin/python" - <<'PYTHON'
import arrow
from arrow.locales import _locale_map

form = "D MMMM YYYY"
days = [arrow.Arrow(2024, month, day) for month in range(1, 13) for day in (1, 11, 21)]
wrong = {}
for code in sorted(_locale_map):
    count = sum(arrow.get(day.format(form, locale=code), form, locale=code) != day for day in days)
    if count:
        wrong[code] = count
text = days[1].format(form, locale="th")
print(text, arrow.get(text, form, locale="th").date(), wrong)
# Seen: 11 มกราคม 2567 2567-01-11 {'lo': 36, 'lo-la': 36, 'th': 36, 'th-th': 36}
assert text == "11 มกราคม 2567"
assert str(arrow.get(text, form, locale="th").date()) == "2567-01-11"
assert wrong == {"lo": 36, "lo-la": 36, "th": 36, "th-th": 36}, wrong
PYTHON
