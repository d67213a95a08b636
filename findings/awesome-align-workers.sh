#!/bin/sh
# awesome-align 0.1.7 (PyPI): with more than one worker, the file of links can have more lines than that of sentences. Nothing is said.
# `--num_workers` cuts the file into parts of equal bytes and moves each cut to the next line. Where two cuts are in one long line, they
# move to the same place, and a part without lines is left. Its worker reads a line before it looks where its part ends.
# Of four pairs, of which the second is long, 4 workers read six, and 8 workers ten. The third is there three times and seven times.
# Links of the lines behind it then belong to other sentences. One worker and two read each line once.
# `LineByLineTextDataset` reads the lines that the command run_align.py writes links for, one line for each.
# Here: nothing, links/files.py raises an error if a file of links has another number of lines than there are pairs.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/pip" install --quiet awesome-align==0.1.7
cd "$folder"
cat > show.py <<'PYTHON'
from pathlib import Path

from awesome_align.run_align import LineByLineTextDataset, find_offsets
from awesome_align.tokenization_bert import BertTokenizer
from torch.utils.data import DataLoader


def first_item(batch):
    return batch[0][-1]


letters = "abcdefgh"
Path("vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]) + "\n")
long = " ".join(letters * 4)
Path("pairs.txt").write_text(f"a b ||| a b\n{long} ||| {long}\nc ||| c\nd ||| d\n")
tokenizer = BertTokenizer("vocab.txt")
tokenizer.max_len = 512
for workers in (0, 2, 4, 8):
    dataset = LineByLineTextDataset(tokenizer, "pairs.txt", find_offsets("pairs.txt", workers))
    words = [words[0] for words in DataLoader(dataset, num_workers=workers, collate_fn=first_item)]
    print(workers, "workers:", len(words), "lines,", words.count("c"), "of them the third")
PYTHON
venv/bin/python -W ignore show.py | grep workers: > shown
cat shown
cat > seen <<'SEEN'
0 workers: 4 lines, 1 of them the third
2 workers: 4 lines, 1 of them the third
4 workers: 6 lines, 3 of them the third
8 workers: 10 lines, 7 of them the third
SEEN
cmp shown seen
