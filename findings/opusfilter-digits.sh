#!/bin/sh
# opusfilter 3.3.1: NonZeroNumeralsFilter knows ASCII digits alone. A pair whose Hindi side writes 1990 in its own digits is
# removed, one with ASCII digits on both sides stays.
# Here: prepare/rules.py compares the values of digits of all scripts.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet opusfilter==3.3.1
cd "$folder"
printf 'सन् १९९० में\nसन् 1990 में\n' > side.hi
printf 'in the year 1990\nin the year 1990\n' > side.en
cat > steps.yaml <<'YAML'
steps:
  - type: filter
    parameters:
      inputs: [side.hi, side.en]
      outputs: [kept.hi, kept.en]
      filters: [{NonZeroNumeralsFilter: {threshold: 0.5}}]
YAML
venv/bin/opusfilter steps.yaml 2> log
echo "kept: $(cat kept.hi)"
# Seen: kept: सन् 1990 में
test "$(cat kept.hi)" = "सन् 1990 में"
