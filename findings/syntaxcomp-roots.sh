#!/bin/sh
# syntaxcomp 0.0.1 (PyPI): the mean dependency distance counts the root as a word that depends on word 0. Nothing is said.
# So it adds the root's place in the sentence. A language with its verb at the end, as Turkish, Japanese or Hindi, seems harder.
# "Git eve" and "Eve git" (go home) have one relation each, between neighbours: a mean of 1. It says 1 and 1.5.
# Six words that depend on a verb at the end of them: 3.5 is the mean, and 4 is said. With the verb first, 3.14 is said.
# Treebank studies compare languages by this mean, and leave the root out, as it depends on no word.
# Here: nothing, no command measures trees.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet syntaxcomp==0.0.1
cd "$folder"
cat > show.py <<'PYTHON'
from statistics import mean

from syntaxcomp.complexity import TextComplexity


def rows(text, heads):
    words = zip(text.split(), heads)
    lines = [f"{i}\t{word}\t_\t{'NOUN' if head else 'VERB'}\t_\t_\t{head}\t{'obj' if head else 'root'}\t_\t_" for i, (word, head) in enumerate(words, 1)]
    return "\n".join([f"# text = {text}", *lines]) + "\n\n"


for text, heads in (
    ("Git eve", [0, 1]),
    ("Eve git", [2, 0]),
    ("git a b c d e f", [0, 1, 1, 1, 1, 1, 1]),
    ("a b c d e f git", [7, 7, 7, 7, 7, 7, 0]),
):
    distances = [abs(head - i) for i, head in enumerate(heads, 1) if head]
    print(text, "|", round(TextComplexity(rows(text, heads)).mdd, 2), "|", round(mean(distances), 2))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
Git eve | 1 | 1
Eve git | 1.5 | 1
git a b c d e f | 3.14 | 3.5
a b c d e f git | 4 | 3.5
SEEN
cmp shown seen
