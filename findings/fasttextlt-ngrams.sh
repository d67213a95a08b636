#!/bin/sh
# fasttextlt 0.2.0 (PyPI): for some models of fastText, words get n-grams that are not theirs, and nothing is said.
# A model trained with `-maxn 0`, as word2vec's are, has no n-grams. fastText gives "house" the number of the word alone. fasttextlt
# gives nine numbers: eight of them were never written, and are what the memory held before. They differ from run to run.
# With `-minn 6`, the word "a" is too short for an n-gram. It gets one number all the same.
# The mark of a line's end, "</s>", has no n-grams in fastText, and ten in fasttextlt at 3 to 6 letters.
# The docstring asks for lengths above 0, but the lengths come out of the model's file. The README says that it loads binary models.
# Vectors of words are means over these rows, so vectors of two languages would be aligned to noise.
# Here: nothing, no command reads models of fastText.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet fasttextlt==0.2.0 fasttext-wheel==0.9.2 numpy==2.4.6
cd "$folder"
cat > show.py <<'PYTHON'
import random
from pathlib import Path

import fasttext
from fasttextlt.fasttext import FastText

chooser = random.Random(1)
lines = (" ".join(chooser.choices(["dog", "cat", "house", "river"], k=8)) for _ in range(200))
Path("text.txt").write_text("\n".join(lines))
for minn, maxn in ((3, 6), (6, 6), (0, 0)):
    model = fasttext.train_unsupervised("text.txt", dim=4, bucket=1000, minn=minn, maxn=maxn, minCount=1, thread=1, verbose=0)
    model.save_model("model.bin")
    other = FastText.load_model("model.bin")
    for word in ("house", "a", "</s>"):
        print(minn, maxn, word, len(model.get_subwords(word)[1]), len(other.get_subword_ids(word)))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
3 6 house 15 15
3 6 a 1 1
3 6 </s> 1 11
6 6 house 3 3
6 6 a 0 1
6 6 </s> 1 2
0 0 house 1 9
0 0 a 0 4
0 0 </s> 1 8
SEEN
cmp shown seen
