#!/bin/sh
# @huggingface/tokenizers 0.2.0 (npm) reads the tokenizer.json of tokenizers 0.23.3 (PyPI), and cuts text in other places.
# Its `Whitespace` takes ASCII letters alone for letters: Việt (Vietnamese) becomes "Vi", "ệ", "t", and Straße "Stra", "ß", "e".
# Its `Digits` knows ASCII digits alone: १२३ in Hindi, Arabic ١٢٣ and Burmese ၁၂ stay one piece where the model has seen digits.
# `BertNormalizer` parts no Chinese characters beyond U+FFFF, and writes a small Greek ς at a word's end, where the model has σ.
# So "ΟΔΟΣ" (street) is another word to it than to the model that was trained.
# `Metaspace` parts no words. A vocabulary with words in it finds those of a whole sentence alone.
# The model gets other ids in a browser than in training, most often that of an unknown word. Nothing is said.
# The README names the differences of regular expressions that are left, and none of these.
# Here: nothing, models run in Python.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tokenizers==0.23.3
cd "$folder"
npm install --silent --no-audit --no-fund @huggingface/tokenizers@0.2.0
cat > make.py <<'PYTHON'
import json
from pathlib import Path

from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel

blank = pre_tokenizers.WhitespaceSplit()
cases = [
    ("Whitespace", None, pre_tokenizers.Whitespace(), ["Việt Nam", "die Straße", "Warszawa", "हिन्दी"]),
    ("Digits", None, pre_tokenizers.Digits(individual_digits=True), ["123", "१२३", "١٢٣", "၁၂"]),
    ("BertNormalizer", normalizers.BertNormalizer(), blank, ["ΟΔΟΣ", "中文", "𠀀𠀁"]),
    ("Metaspace", None, pre_tokenizers.Metaspace(), ["der Hund"]),
]
written = []
for name, normalizer, splitter, texts in cases:
    found = []
    for text in texts:
        clean = normalizer.normalize_str(text) if normalizer else text
        found.append([piece for piece, _ in splitter.pre_tokenize_str(clean)])
    words = dict.fromkeys(["[UNK]", *(piece for pieces in found for piece in pieces)])
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    ids = [tokenizer.encode(text).ids for text in texts]
    written.append({"name": name, "texts": texts, "pieces": found, "ids": ids, "tokenizer": json.loads(tokenizer.to_str())})
Path("cases.json").write_text(json.dumps(written), encoding="utf-8")
PYTHON
cat > show.mjs <<'NODE'
import { readFileSync } from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";

for (const { name, texts, pieces, ids, tokenizer } of JSON.parse(readFileSync("cases.json", "utf8"))) {
  const read = new Tokenizer(tokenizer, { unk_token: "[UNK]" });
  texts.forEach((text, place) => {
    const found = read.encode(text);
    const same = String(found.ids) === String(ids[place]) ? "same ids" : `ids ${ids[place]} and ${found.ids}`;
    console.log(name, JSON.stringify(pieces[place]), JSON.stringify(read.tokenize(text)), same);
  });
}
NODE
venv/bin/python make.py
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
Whitespace ["Việt","Nam"] ["Vi","ệ","t","Nam"] ids 1,2 and 0,0,0,2
Whitespace ["die","Straße"] ["die","Stra","ß","e"] ids 3,4 and 3,0,0,0
Whitespace ["Warszawa"] ["Warszawa"] same ids
Whitespace ["हिन्दी"] ["हिन्दी"] same ids
Digits ["1","2","3"] ["1","2","3"] same ids
Digits ["१","२","३"] ["१२३"] ids 4,5,6 and 0
Digits ["١","٢","٣"] ["١٢٣"] ids 7,8,9 and 0
Digits ["၁","၂"] ["၁၂"] ids 10,11 and 0
BertNormalizer ["οδοσ"] ["οδος"] ids 1 and 0
BertNormalizer ["中","文"] ["中","文"] same ids
BertNormalizer ["𠀀","𠀁"] ["𠀀𠀁"] ids 4,5 and 0
Metaspace ["▁der","▁Hund"] ["▁der▁Hund"] ids 1,2 and 0
SEEN
cmp shown seen
