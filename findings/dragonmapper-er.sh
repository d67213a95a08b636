#!/bin/sh
# dragonmapper 0.3.0 (PyPI): Chinese in zhuyin (bopomofo) becomes pinyin without vowels, and nothing is said.
# ㄦˊ (儿, son) and ㄦˋ (二, two), ér and èr in pinyin, become "r2" and "r4", with digits where others have a mark over the vowel.
# ㄉㄣˋ (扽) and ㄎㄟ (剋) become "ㄉèn" and "ㄎēi", and ㄋㄨㄣˊ (黁) becomes "nūén".
# The package itself makes ㄦˋ of "èr", ㄉㄣˋ of "dèn" and so on, but does not read them again.
# The documentation of `zhuyin_to_pinyin` says that all zhuyin syllables are converted, and names none that is not.
# pypinyin 0.55.0 writes 二 as "èr" in pinyin and as "ㄦˋ" in zhuyin.
# Dictionaries of Taiwan are in zhuyin. Joined to another dictionary by their pinyin, these words have no partner.
# Here: nothing, no command reads zhuyin.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dragonmapper==0.3.0 pypinyin==0.55.0
"$folder/venv/bin/python" - <<'PYTHON'
from dragonmapper.transcriptions import pinyin_to_zhuyin, zhuyin_to_pinyin
from pypinyin import Style, pinyin

seen = {
    "èr": ("ㄦˋ", "r4", "r4"),
    "ér": ("ㄦˊ", "r2", "r2"),
    "dèn": ("ㄉㄣˋ", "ㄉèn", "ㄉen4"),
    "kēi": ("ㄎㄟ", "ㄎēi", "ㄎei1"),
    "nún": ("ㄋㄨㄣˊ", "nūén", "nu1en2"),
    "sān": ("ㄙㄢ", "sān", "san1"),
}
for syllable, expected in seen.items():
    zhuyin = pinyin_to_zhuyin(syllable)
    found = (zhuyin, zhuyin_to_pinyin(zhuyin), zhuyin_to_pinyin(zhuyin, accented=False))
    print(syllable, *found)
    # Seen: èr ㄦˋ r4 r4, ér ㄦˊ r2 r2, dèn ㄉㄣˋ ㄉèn ㄉen4, kēi ㄎㄟ ㄎēi ㄎei1, nún ㄋㄨㄣˊ nūén nu1en2, sān ㄙㄢ sān san1
    assert found == expected, found
assert [pinyin("二", style=style)[0][0] for style in (Style.TONE, Style.BOPOMOFO)] == ["èr", "ㄦˋ"]
PYTHON
