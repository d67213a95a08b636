#!/bin/sh
# speach 0.1a15.post1 (PyPI): a time just below a full second is written with 1000 milliseconds, and read as 0.9 seconds earlier.
# `vtt.sec2ts(59.9997)` is "00:00:59.1000". WebVTT has three digits there, and no player or reader takes four for a second.
# Its own `ts2sec` reads the first three, 59.1 seconds. Nothing is said. One time in 2,000 is such, if times have more than three digits.
# Times in seconds have more digits where they come from frames, samples or a recognizer.
# Here: nothing, no command reads subtitles.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet speach==0.1a15.post1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from speach import vtt

times = [1.5, 1.9996, 59.9997, 3599.9999]
found = [(time, vtt.sec2ts(time), vtt.ts2sec(vtt.sec2ts(time))) for time in times]
print(*found)
# Seen: (1.5, '00:00:01.500', 1.5) (1.9996, '00:00:01.1000', 1.1) (59.9997, '00:00:59.1000', 59.1)
#       (3599.9999, '00:59:59.1000', 3599.1)
assert found == [
    (1.5, "00:00:01.500", 1.5),
    (1.9996, "00:00:01.1000", 1.1),
    (59.9997, "00:00:59.1000", 59.1),
    (3599.9999, "00:59:59.1000", 3599.1),
]
PYTHON
