#!/bin/sh
# ethiopian-calendar-new 1.1.0 (npm) and ethiotime 1.0.2 (PyPI): a date of the Ethiopian calendar is a day too late in each
# fourth year, and nothing is said.
# Before a leap year of ours, the thirteenth month has a sixth day: 11 September 2023 is 6 Pagume 2015.
# Both take it for the first day of 2016, and so 12 September for the second, and on until the year ends.
# Then 10 and 11 September 2024 are one date, 1 Meskerem 2017. So are one in four of all dates of 1910 to 2098 wrong.
# The READMEs of both call them accurate, and say that they handle leap years and the thirteenth month.
# Dates in Amharic text and in its translation then differ by a day, or match where they should not.
# ICU's calendar, as Node has it, and ethiocalendar 1.2.0 and ethioqen 0.3.1 of PyPI agree on each of these dates.
# Here: nothing, no command reads dates.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ethiotime==1.0.2 ethiocalendar==1.2.0 ethioqen==0.3.1
cd "$folder"
npm install --silent --no-audit --no-fund ethiopian-calendar-new@1.1.0
cat > show.cjs <<'NODE'
const { writeFileSync } = require("node:fs");
const { toEthiopian } = require("ethiopian-calendar-new");

const format = new Intl.DateTimeFormat("en-u-ca-ethiopic", { timeZone: "UTC", year: "numeric", month: "numeric", day: "numeric" });
const dates = {};
let wrong = 0;
for (let time = Date.UTC(1910, 0, 1); time < Date.UTC(2099, 0, 1); time += 86400000) {
  const day = new Date(time).toISOString().slice(0, 10);
  const parts = Object.fromEntries(format.formatToParts(time).map(({ type, value }) => [type, parseInt(value)]));
  dates[day] = [parts.year, parts.month, parts.day];
  const found = Object.values(toEthiopian(...day.split("-").map(Number)));
  wrong += String(found) !== String(dates[day]);
  if (["2023-09-10", "2023-09-11", "2023-09-12", "2024-09-10", "2024-09-11"].includes(day)) console.log(day, ...dates[day], "-", ...found);
}
console.log("ethiopian-calendar-new", wrong, "of", Object.keys(dates).length);
writeFileSync("dates.json", JSON.stringify(dates));
NODE
cat > show.py <<'PYTHON'
import json
from datetime import date
from pathlib import Path

import ethiocalendar
import ethioqen
from ethiotime import CalendarService


dates = json.loads(Path("dates.json").read_text(encoding="utf-8"))
readers = {
    "ethiotime": lambda day: list(CalendarService.gc_to_ec(day)),
    "ethiocalendar": lambda day: list(ethiocalendar.from_gregorian(day.year, day.month, day.day)),
    "ethioqen": lambda day: list(ethioqen.convert_gregorian_to_ethiopian(day.year, day.month, day.day)),
}
for name, read in readers.items():
    print(name, sum(read(date.fromisoformat(day)) != seen for day, seen in dates.items()))
PYTHON
node show.cjs > shown
venv/bin/python show.py >> shown
cat shown
cat > seen <<'SEEN'
2023-09-10 2015 13 5 - 2015 13 5
2023-09-11 2015 13 6 - 2016 1 1
2023-09-12 2016 1 1 - 2016 1 2
2024-09-10 2016 13 5 - 2017 1 1
2024-09-11 2017 1 1 - 2017 1 1
ethiopian-calendar-new 17202 of 69032
ethiotime 17202
ethiocalendar 0
ethioqen 0
SEEN
cmp shown seen
