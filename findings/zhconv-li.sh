#!/bin/sh
# zhconv 1.4.3: common words get the wrong one of two traditional characters. 公里 (kilometre) becomes 公裏 ("public inside"),
# 长征 (the Long March) 長徵, 北斗 (the Plough, and the satellites) 北鬥, 干涉 (interfere) 幹涉, and the names 岳飞 and 范仲淹 are
# changed too. With zh-tw it is 裡程 for 里程 (mileage). OpenCC's table, here of opencc-python-reimplemented 0.1.7, leaves them
# right. A corpus that was made traditional with zhconv has words that no other text has, and its numbers of kilometres
# do not match a dictionary.
# Here: nothing, text is never converted between the two scripts.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet zhconv==1.4.3 opencc-python-reimplemented==0.1.7 setuptools==80.9.0
cd "$folder"
cat > show.py <<'PYTHON'
from opencc import OpenCC
from zhconv import convert

simple = ("公里", "里程", "长征", "北斗", "占卜", "干涉", "岳飞", "范仲淹", "面条", "理发", "皇后")
for name, change in (
    ("zhconv zh-hant", lambda word: convert(word, "zh-hant")),
    ("zhconv zh-tw", lambda word: convert(word, "zh-tw")),
    ("opencc s2t", OpenCC("s2t").convert),
):
    print(name, " ".join(map(change, simple)))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
zhconv zh-hant 公裏 裏程 長徵 北鬥 佔卜 幹涉 嶽飛 範仲淹 麵條 理髮 皇后
zhconv zh-tw 公裡 裡程 長徵 北鬥 佔卜 幹涉 嶽飛 範仲淹 麵條 理髮 皇后
opencc s2t 公里 里程 長征 北斗 占卜 干涉 岳飛 范仲淹 麪條 理髮 皇后
SEEN
cmp shown seen
