#!/bin/sh
# datasets 5.2.0 with pyarrow 26.0.1: a JSON column whose strings all look like dates is loaded as `datetime` objects.
# A column of text becomes timestamps where each row is one date, and stays text where one row is not.
# Written by `to_json` again, the same rows are milliseconds: what was saved, loaded and saved is another file.
# With `features=` that name a string, each gets a time at its end that the file has not. A CSV file keeps the text.
# Here: nothing, data/readers reads JSON Lines itself.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet datasets==5.2.0 pyarrow==26.0.1
cd "$folder"
HF_HOME="$folder/home" HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - <<'PYTHON'
from pathlib import Path

from datasets import Dataset, Features, Value, disable_progress_bars, load_dataset

disable_progress_bars()
texts = Dataset.from_dict({"text": ["2020-01-01", "2021-02-03"]})
texts.to_json("texts.jsonl")
loaded = load_dataset("json", data_files="texts.jsonl", split="train")
loaded.to_json("again.jsonl")
print(loaded.features["text"].dtype, repr(loaded[0]["text"]), Path("again.jsonl").read_text().split()[0])
# Seen: timestamp[s] datetime.datetime(2020, 1, 1, 0, 0) {"text":1577836800000}
assert loaded.features["text"].dtype == "timestamp[s]"
assert Path("again.jsonl").read_text().split()[0] == '{"text":1577836800000}'

one = Dataset.from_dict({"text": ["2020-01-01", "On 3 February"]})
one.to_json("one.jsonl")
assert load_dataset("json", data_files="one.jsonl", split="train")[:] == one[:]
text = Features({"text": Value("string")})
named = load_dataset("json", data_files="texts.jsonl", split="train", features=text)
print(named[0])
# Seen: {'text': '2020-01-01 00:00:00'}
assert named[0] == {"text": "2020-01-01 00:00:00"}
texts.to_csv("texts.csv")
assert load_dataset("csv", data_files="texts.csv", split="train")[:] == texts[:]
PYTHON
