#!/bin/sh
# @huggingface/tokenizers 0.2.0 (npm) does not read a SentencePiece model's table of characters, which tokenizer.json holds.
# tokenizers 0.23.3 and sentencepiece 0.2.3 normalize text by this table (`Precompiled`) before they cut it.
# The npm package does NFKC and a list of its own in its place, whatever the table says.
# A table of SentencePiece's own rule nmt_nfkc_cf makes small letters. In the npm package they stay capital.
# With the rule nmt_nfkc, U+200D is kept, and in the npm package it becomes a blank. So Sinhala's ශ්‍රී (Sri) is two words.
# With a table of one's own, which writes Romanian's old ţ and ş as ț and ș, the text stays as it was.
# So a model gets other ids in a browser than in training. Nothing is said, and the README names `Precompiled` as supported.
# Here: nothing, models run in Python.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tokenizers==0.23.3 sentencepiece==0.2.3 protobuf==7.36.2
cd "$folder"
npm install --silent --no-audit --no-fund @huggingface/tokenizers@0.2.0
cat > make.py <<'PYTHON'
import io
import json
from pathlib import Path

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import Tokenizer, normalizers
from tokenizers.models import WordLevel

Path("rules.tsv").write_text("15F\t219\n163\t21B\n", encoding="utf-8")
texts = {"nmt_nfkc": "ශ්‍රී ලංකා", "nmt_nfkc_cf": "Die STRASSE", "rules.tsv": "naţiune şi"}
written = []
for rule, text in texts.items():
    model = io.BytesIO()
    source = {"normalization_rule_tsv": rule} if rule.endswith(".tsv") else {"normalization_rule_name": rule}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["die der das und ein eine Haus Hund"] * 50),
        model_writer=model,
        vocab_size=30,
        hard_vocab_limit=False,
        minloglevel=2,
        **source,
    )
    proto = ModelProto()
    proto.ParseFromString(model.getvalue())
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    wanted = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).normalize(text)
    found = tokenizer.normalizer.normalize_str(text)
    written.append({"rule": rule, "text": text, "wanted": wanted, "found": found, "tokenizer": json.loads(tokenizer.to_str())})
Path("cases.json").write_text(json.dumps(written), encoding="utf-8")
PYTHON
cat > show.mjs <<'NODE'
import { readFileSync } from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";

const plain = (text) => text.replace(/\u200d/g, "<U+200D>");
for (const { rule, text, wanted, found, tokenizer } of JSON.parse(readFileSync("cases.json", "utf8"))) {
  const read = new Tokenizer(tokenizer, { unk_token: "[UNK]" });
  console.log(rule, [wanted, found, read.tokenize(text).join(" ")].map((each) => JSON.stringify(plain(each))).join(" "));
}
NODE
venv/bin/python make.py 2> errors
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
nmt_nfkc "▁ශ්<U+200D>රී▁ලංකා" "ශ්<U+200D>රී ලංකා" "ශ් රී ලංකා"
nmt_nfkc_cf "▁die▁strasse" "die strasse" "Die STRASSE"
rules.tsv "▁națiune▁și" "națiune și" "naţiune şi"
SEEN
cmp shown seen
