#!/bin/sh
# CorpConv 0.1.2 (PyPI): a CoNLL-U file written again as CoNLL has heads that point to other words, and nothing is said.
# It leaves out the column of numbers and counts the rows anew. A range, "1-2" of a contraction, has a row, and so becomes word 1.
# "vamos" then is word 2, and the heads stay: "nos" depends on 1, which now is the contraction "vámonos" with no relation of its own.
# So it is with empty nodes, "8.1". Spanish, French, Italian, German and Arabic treebanks have ranges in most sentences.
# From VRT (vertical text), a word "<" is lost, as each line with "<" first is taken for a tag. Written as "&lt;", it stays "&lt;".
# Its own VRT has a bare "<", so that the way there and back loses the word.
# Here: nothing, data/readers reads CoNLL-U itself.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet CorpConv==0.1.2
cd "$folder"
tab() { tr ' ' '\t'; }
{
    echo '# sent_id = a'
    tab <<'ROWS'
1-2 vámonos _ _ _ _ _ _ _ _
1 vamos ir VERB _ _ 0 root _ _
2 nos nosotros PRON _ _ 1 obj _ _
3 ya ya ADV _ _ 1 advmod _ _
ROWS
    echo
} > text.conllu
{ echo '# sent_id = b'; printf '1 a _ _\n2 < _ _\n3 b _ _\n' | tab; echo; } > less.conllu
{
    venv/bin/corpconv -i conll -o conll text.conllu
    venv/bin/corpconv -i conll -o vrt less.conllu > less.vrt
    venv/bin/corpconv -i vrt -o osl -d/ less.vrt
} | tr '\t' ' ' > shown
cat shown
cat > seen <<'SEEN'
# sent_id = a
1 vámonos _ _ _ _ _ _ _ _
2 vamos ir VERB _ _ 0 root _ _
3 nos nosotros PRON _ _ 1 obj _ _
4 ya ya ADV _ _ 1 advmod _ _

a// b//
SEEN
cmp shown seen
