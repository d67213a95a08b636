#!/bin/sh
# lingtrain-aligner 1.0.3 (PyPI): its splitter removes letters and cuts numbers in two before it aligns texts. Nothing is said.
# It makes sentences of the two sides of a parallel book. By default (clean_text=True), all Latin letters are removed from Japanese, so
# that 彼はPythonを教える ("he teaches Python") is 彼はを教える ("he teaches"), and all Cyrillic ones from Chinese. Blanks go too, and make
# one word of an English name, NewYork. The percent sign of ２０％ goes, so that 20% is 20. A second "！" or "？" goes in any case.
# In Chinese and Japanese a sentence ends at each ".", so that 3.5 years are two sentences, "3." and "5 years". In Armenian one ends at
# each ":", so that half past twelve (12:30) is two. Korean and German numbers are left whole.
# So two sides have other numbers of sentences, and their texts differ from what the translators wrote.
# Here: nothing, data/readers takes sentences as they are.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps lingtrain-aligner==1.0.3
"$folder/venv/bin/pip" install --quiet razdel==0.5.0 dateparser==1.2.2
"$folder/venv/bin/python" - <<'PYTHON'
from lingtrain_aligner.splitter import split_by_sentences

texts = {
    "jp": "彼はPythonを3.5年教える。本当？！",
    "zh": "他在New York工作了3.5年。真的？！价格涨了２０％。",
    "hy": "Ժամը 12:30 էր։",
    "ko": "그는 3.5년 일했다. 정말?",
}
seen = {
    "jp": ["彼はを3。", "5年教える。", "本当？"],
    "zh": ["他在NewYork工作了3.", "5年。", "真的？", "价格涨了２０。"],
    "hy": ["Ժամը 12:", "30 էր։"],
    "ko": ["그는 3.5년 일했다.", "정말?"],
}
found = {language: split_by_sentences([text], language) for language, text in texts.items()}
print(found)
assert found == seen
assert split_by_sentences(["彼はPythonを教える。"], "jp", clean_text=False) == ["彼はPythonを教える。"]
PYTHON
