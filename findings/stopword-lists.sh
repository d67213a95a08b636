#!/bin/sh
# stop-words 2025.11.4 and stopwordsiso 0.7.1 (PyPI), stopword 3.1.5 and stopwords-iso 1.1.0 (npm): lists of words that occur in no text.
# stop-words has all 193 Hebrew words between quotation marks, nearly all with a comma after them: '"אבל",' (but).
# In Slovak, its "a" (and) follows U+FEFF, a mark at the beginning of a file. So the most frequent words are not found.
# Others were read in the character set of another language. In Lithuanian, 139 of 474 words of stopwordsiso, stopwords-iso and
# stopword are such: "ið" for iš (from), "að" for aš (I). In Turkish, 20 of 114 of stop-words, "þey" for şey (thing), and in
# Hungarian 7, "õk" for ők (they). In Slovak, 10 of 110 of stopword, "èo" for čo (what). None of the right forms is in the list.
# Text without stop words still has these words then, and keywords and topics of it are "and" and "from". Nothing is said.
# In Czech, Polish, Latvian and Romanian no such word was found.
# Here: nothing, no command leaves out words.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet stop-words==2025.11.4 stopwordsiso==0.7.1
cd "$folder"
npm install --silent --no-audit --no-fund stopword@3.1.5 stopwords-iso@1.1.0
cat > lists.mjs <<'NODE'
import { readFileSync } from "node:fs";
import { lit, slk } from "stopword";

const { lt } = JSON.parse(readFileSync("node_modules/stopwords-iso/stopwords-iso.json", "utf8"));
console.log(JSON.stringify({ lit, slk, lt }));
NODE
node lists.mjs > lists.json
"$folder/venv/bin/python" - > shown <<'PYTHON'
import json
from pathlib import Path

from stop_words import get_stop_words
from stopwordsiso import stopwords

lists = json.loads(Path("lists.json").read_text("utf-8"))


def garbled(words, charset):
    """Return how many words are another character set's, and how many of the right forms are in the list."""
    pairs = []
    for word in words:
        try:
            right = word.encode("cp1252").decode(charset)
        except UnicodeError:
            continue
        if right != word:
            pairs.append((word, right))
    return len(words), len(pairs), sum(right in words for _, right in pairs)


hebrew = get_stop_words("hebrew")
print("stop-words he", len(hebrew), sum('"' in word for word in hebrew), sum(word.endswith(",") for word in hebrew))
slovak = get_stop_words("slovak")
print("stop-words sk", [ascii(word) for word in slovak if "\ufeff" in word], "a" in slovak)
print("stop-words tr", *garbled(get_stop_words("turkish"), "cp1254"))
print("stop-words hu", *garbled(get_stop_words("hungarian"), "cp1250"))
print("stopwordsiso lt", *garbled(stopwords("lt"), "cp1257"), {"iš", "aš"} & stopwords("lt"))
print("stopwords-iso lt", *garbled(lists["lt"], "cp1257"))
print("stopword lt", *garbled(lists["lit"], "cp1257"))
print("stopword sk", *garbled(lists["slk"], "cp1250"))
PYTHON
cat shown
cat > seen <<'SEEN'
stop-words he 193 193 192
stop-words sk ["'\\ufeffa'"] False
stop-words tr 114 20 0
stop-words hu 206 7 0
stopwordsiso lt 474 139 0 set()
stopwords-iso lt 474 139 0
stopword lt 474 139 0
stopword sk 110 10 0
SEEN
cmp shown seen
