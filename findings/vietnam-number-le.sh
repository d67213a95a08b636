#!/bin/sh
# vietnam_number 1.0.6: numbers with an empty ten are written with a word that means something else. 105 is "một trăm lẽ năm",
# where Vietnamese has "lẻ" (odd, over): "lẽ", with another tone, means reason. Its own reader takes both. Tokenizers that
# keep tones give the two different pieces, so that text made by it differs from all other text.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet vietnam_number==1.0.6
cd "$folder"
cat > show.py <<'PYTHON'
import unicodedata

from vietnam_number import n2w, w2n

for number in ("101", "105", "1005", "115"):
    print(number, n2w(number), [unicodedata.name(c).split(" WITH ")[-1] for c in n2w(number) if c in "ẽẻ"])
print(w2n("một trăm lẻ năm"), w2n("một trăm lẽ năm"), w2n("một trăm linh năm"))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
101 một trăm lẽ một ['TILDE']
105 một trăm lẽ năm ['TILDE']
1005 một nghìn không trăm lẽ năm ['TILDE']
115 một trăm mười lăm []
105 105 105
SEEN
cmp shown seen
