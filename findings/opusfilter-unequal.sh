#!/bin/sh
# opusfilter 3.3.1: two files of unequal length are cut to the shorter one, without a word and with status 0. Every pair
# after a missing line is another sentence's translation.
# Here: data/readers refuses such files, and says how many lines each has.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet opusfilter==3.3.1
cd "$folder"
printf 'one\ntwo\nthree\n' > side.en
printf 'eins\ndrei\n' > side.de
cat > steps.yaml <<'YAML'
steps:
  - type: filter
    parameters:
      inputs: [side.en, side.de]
      outputs: [kept.en, kept.de]
      filters: [{LengthFilter: {unit: word, min_length: 1, max_length: 100}}]
YAML
venv/bin/opusfilter steps.yaml 2> log
status=$?
echo "status $status, pairs: $(paste -d= kept.en kept.de | tr '\n' ' ')"
# Seen: status 0, pairs: one=eins two=drei
test "$status" = 0 && test "$(paste -d= kept.en kept.de | tr '\n' ' ')" = "one=eins two=drei "
! grep -qi -e warn -e error -e unequal log
