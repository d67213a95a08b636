#!/bin/sh
# opusfilter 3.3.1: remove_duplicates with letters_only compares Hindi without its vowel signs, which are no letters of `\w`.
# So three different words are one, and two of them are removed.
# Here: prepare/rules.py compares marks too.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet opusfilter==3.3.1
cd "$folder"
printf 'पता\nपिता\nपति\n' > words.hi  # address, father, husband
cat > steps.yaml <<'YAML'
steps:
  - type: remove_duplicates
    parameters: {inputs: [words.hi], outputs: [kept.hi], letters_only: true}
YAML
venv/bin/opusfilter steps.yaml 2> log
echo "kept: $(cat kept.hi)"
# Seen: kept: पता
test "$(cat kept.hi)" = पता
