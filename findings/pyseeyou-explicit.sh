#!/bin/sh
# pyseeyou 1.0.2: the explicit forms "=0" and "=1" of an ICU message are wrong in two ways, and nothing is said.
# With an offset, they are compared with the number less the offset, where ICU compares the number itself. So two guests
# read "Only Ana comes", and one guest reads "Nobody comes". From three guests on, the text is right.
# A "#" in an explicit form stays as it is, so one day reads "# day". In the forms "one" and "other" it becomes the number.
# The npm package intl-messageformat 12.1.5 writes both as ICU does.
# Here: nothing, no command formats messages.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyseeyou==1.0.2
cd "$folder"
npm install --silent --no-audit --no-fund intl-messageformat@12.1.5
cat > guests.txt <<'MESSAGE'
{n, plural, offset:1 =0 {Nobody comes} =1 {Only {host} comes}
  one {{host} and # other come} other {{host} and # others come}}
MESSAGE
printf '{n, plural, =1 {# day} other {# days}}' > days.txt
cat > show.py <<'PYTHON'
from pathlib import Path

from pyseeyou import format

for name, numbers in (("guests", range(4)), ("days", (1, 2))):
    message = Path(f"{name}.txt").read_text().strip()
    for number in numbers:
        print(number, format(message, {"n": number, "host": "Ana"}, "en"))
PYTHON
cat > show.mjs <<'NODE'
import { readFileSync } from "node:fs";
import { IntlMessageFormat } from "intl-messageformat";

for (const [name, numbers] of [["guests", [0, 1, 2, 3]], ["days", [1, 2]]]) {
  const message = new IntlMessageFormat(readFileSync(`${name}.txt`, "utf8").trim(), "en");
  for (const number of numbers) console.log(number, message.format({ n: number, host: "Ana" }));
}
NODE
venv/bin/python show.py > pyseeyou
node show.mjs > intl
paste -d '|' pyseeyou intl
cat > seen <<'SEEN'
0 Nobody comes|0 Nobody comes
1 Nobody comes|1 Only Ana comes
2 Only Ana comes|2 Ana and 1 other come
3 Ana and 2 others come|3 Ana and 2 others come
1 # day|1 1 day
2 2 days|2 2 days
SEEN
paste -d '|' pyseeyou intl | diff - seen
