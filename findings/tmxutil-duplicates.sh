#!/bin/sh
# tmxutil 1.3 (PyPI): of duplicates, the last one's text is kept with another one's score, and nothing is said.
# `tmxutil -d` groups pairs by bifixer's hash. Its help says that bifixer's hash and score are used, and a comment in its code that an
# entry is overwritten if the new one is better. bifixer's README has it that the higher a score, the better the text.
# Scores are compared as text, and the lower one wins: "100.5" is lower than "22.5" and than "9.5". And no score is asked about the
# text itself: the last one of a group is written. So of three spellings of one sentence, the worst is written with the best one's score,
# and an order of lines decides which text a corpus has.
# Here: nothing, no reader knows bifixer's columns.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tmxutil==1.3
cd "$folder"
printf 'u\tv\t%s\t%s\th1\t%s\t0.9\n' \
  'Ich komme heute.' 'I come today.' 22.5 \
  'Ich komme heute!' 'I come today!' 100.5 \
  'Ich kome heute' 'i come to day' 9.5 > pairs.tab
tac pairs.tab > reversed.tab
for file in pairs reversed; do
  venv/bin/tmxutil -l de en -d $file.tab | sed -n 's/ *<seg>\(.*\)<.seg>/\1/p; s/ *<prop type="score-bifixer">\(.*\)<.prop>/\1/p'
done > shown
cat shown
cat > seen <<'SEEN'
100.5
Ich kome heute
i come to day
100.5
Ich komme heute.
I come today.
SEEN
cmp shown seen
