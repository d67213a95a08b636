#!/bin/sh
# arabic-sentencizer 0.1.1 (PyPI): no Arabic sentence ends after a word that ends in د, م or أ, and nothing is said.
# It protects the point of the abbreviations "د." (Dr) and "م." (engineer), and finds them at the end of any word too.
# "ذهب الولد إلى البلد. ثم عاد." (The boy went to the town. Then he came back.) is one sentence. With "البيت" (the house), it is two.
# م ends "هم" (they), "لهم" (to them), "كتابهم" (their book) and "اليوم" (today).
# The README names abbreviations, and nothing of words.
# Sentences so joined have no partner in the other language.
# Here: nothing, data/readers takes sentences as they are.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet arabic-sentencizer==0.1.1 nltk==3.10.4
"$folder/venv/bin/python" - <<'PYTHON'
from arabic_sentencizer import ArabicSentencizer

sentencizer = ArabicSentencizer(train_on_reuters=False)
counts = {}
for word in ("البيت", "البلد", "اليوم", "كتابهم", "كتابي", "مبدأ"):  # the house, the town, today, their book, my book, principle
    counts[word] = len(sentencizer.split_sentences(f"هذا {word}. ثم عاد."))
print(counts)
# Seen: {'البيت': 2, 'البلد': 1, 'اليوم': 1, 'كتابهم': 1, 'كتابي': 2, 'مبدأ': 1}
assert list(counts.values()) == [2, 1, 1, 1, 2, 1]
PYTHON
