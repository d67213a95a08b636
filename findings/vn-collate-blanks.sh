#!/bin/sh
# vn-collate 0.1.0 (PyPI): Vietnamese words and names of several syllables are sorted behind longer ones, and nothing is said.
# A blank, a hyphen and each letter that its table lacks have one and the same weight, behind all letters. So "an ba" stands behind
# "anten", "Phan Anh" behind "Phang" and "bà ba" behind "bác". Most Vietnamese words have a blank in them.
# Texts of unknown characters are equal if they have as many of them: `compare("中国", "日本")` and `compare("a-b", "a b")` are 0.
# Its summary has "Vietnamese collation sort keys, derived from ICU". It is for names and titles in a database.
# Intl.Collator of Node 20, which is ICU, has a blank before all letters, and no two of these texts as equal.
# Here: nothing, no command sorts words of a language.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet vn-collate==0.1.0
cd "$folder"
cat > words <<'WORDS'
an
an ba
ana
anh
anten
bà ba
bác
ca dao
cad
Phan Anh
Phan Vũ
Phang
WORDS
cat > show.py <<'PYTHON'
from vn_collate import compare, sort

words = open("words", encoding="utf-8").read().splitlines()
print(*sort(words), sep=", ")
print(*sort([word for word in words if " " not in word]), sep=", ")
print(compare("中国", "日本"), compare("a-b", "a b"))
PYTHON
"$folder/venv/bin/python" show.py > shown
cat > show.mjs <<'NODE'
import { readFileSync } from "node:fs";

const words = readFileSync("words", "utf8").trim().split("\n");
const { compare } = new Intl.Collator("vi");
console.log([...words].reverse().sort(compare).join(", "));
console.log([["中国", "日本"], ["a-b", "a b"]].map((pair) => compare(...pair)).join(" "));
NODE
node show.mjs >> shown
cat shown
cat > seen <<'SEEN'
an, ana, anh, anten, an ba, bác, bà ba, cad, ca dao, Phang, Phan Anh, Phan Vũ
an, ana, anh, anten, bác, cad, Phang
0 0
an, an ba, ana, anh, anten, bà ba, bác, ca dao, cad, Phan Anh, Phan Vũ, Phang
-1 1
SEEN
cmp shown seen
