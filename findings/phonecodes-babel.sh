#!/bin/sh
# phonecodes 2.0.0 (PyPI): a word with two pronunciations in a lexicon of the BABEL corpora gets one, with both behind each other.
# A line of such a lexicon is the word, its romanization in some languages, and its pronunciations, each behind a tab. Kaldi's
# `prepare_lexicon.pl` for BABEL describes it so. The reader parts them by the text "\s+", which no lexicon has.
# Swahili "ndiyo" with "n d i . j O" and "n d i O" so is "n d i . j O n d i O", 10 symbols long, and is written so.
# A search for either pronunciation finds no word. Nothing is said.
# The README names "babel" for 23 languages, and no limit of the reader. The function has a loop over the pronunciations of a word.
# A dictionary for words that sound alike in two languages then has no word that is said in two ways.
# Here: nothing, no command reads pronunciations.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet phonecodes==2.0.0
cd "$folder"
printf 'kwa\tk w A\nndiyo\tn d i . j O\tn d i O\n' > swa.txt
printf 'ሰላም\tselam\ts @ l a m\ts e l a m\n' > amh.txt
"$folder/venv/bin/python" - <<'PYTHON'
from phonecodes.pronlex import lex

swahili = lex("swa", "xsampa").read("swa.txt", "swa", "babel")
amharic = lex("amh", "xsampa").read("amh.txt", "amh", "babel")
print({word: " ".join(sounds) for word, sounds in {**swahili.w2p, **amharic.w2p}.items()})
# Seen: {'kwa': 'k w A', 'ndiyo': 'n d i . j O n d i O', 'ሰላም': 's @ l a m s e l a m'}
assert " ".join(swahili.w2p["ndiyo"]) == "n d i . j O n d i O"
assert " ".join(amharic.w2p["ሰላም"]) == "s @ l a m s e l a m"
found = [swahili.phones2words(sounds.split()) for sounds in ("k w A", "n d i O", "n d i . j O")]
print(found)
# Seen: [{0: [['kwa']]}, {}, {}]
assert found == [{0: [["kwa"]]}, {}, {}]
PYTHON
