#!/bin/sh
# sil-thot 3.5.3: the HMM model links no word of a sentence of 201 words or more, and says nothing.
# The log probability is -99999 then, a number like others. IBM model 2 links sentences of up to 1,024 words.
# The limit is the model's `max_sentence_length`; `get_best_alignment` does not look at it.
# Here: links/statistical.py counts these sentences, and links/align.py says how many there were.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sil-thot==3.5.3
"$folder/venv/bin/python" - <<'PYTHON'
import random

from thot.alignment import HmmAlignmentModel, Ibm2AlignmentModel

draw = random.Random(0)
words = [f"w{number}" for number in range(20)]
for kind in (HmmAlignmentModel, Ibm2AlignmentModel):
    model = kind()
    for _ in range(200):
        sentence = draw.choices(words, k=6)
        model.add_sentence_pair(sentence, [word.upper() for word in sentence], 1)
    model.start_training()
    for _ in range(3):
        model.train()
    model.end_training()
    links = []
    for length in (200, 201):
        sentence = (words * 11)[:length]
        probability, matrix = model.get_best_alignment(sentence, [word.upper() for word in sentence])
        links.append(sum(matrix[row, column] for row in range(length) for column in range(length)))
    print(kind.__name__, *(count > 0 for count in links), round(probability))
    # Seen: HmmAlignmentModel True False -99999
    #       Ibm2AlignmentModel True True -1084
    assert links[0] > 0 and (links[1] > 0) == (kind is Ibm2AlignmentModel)
    assert (round(probability) == -99999) == (kind is HmmAlignmentModel)
PYTHON
