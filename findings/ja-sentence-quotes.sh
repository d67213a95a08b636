#!/bin/sh
# ja-sentence 0.0.5, zh-sentence 0.0.5 and kr-sentence 0.0.3 (PyPI): a text's last sentence is lost if a quote or bracket closes it.
# "「はい。」" is no sentence, and "私は言った。「はい。」" has one. Chinese "他说：「好。」" has none, Korean '그는 말했다. "네."' has one.
# A closing mark after a full stop is held back for the sentence, and at the end of the text nothing hands it out. Nothing is said.
# zh-sentence has no “ and ” in its list of such marks. So "他说：“好。”" loses the ” alone.
# kr-sentence takes "1.5" for one number, and then ends the sentence behind it: "가격은 1.5" and "달러입니다." (the price is 1.5 dollars).
# Dialogue ends paragraphs in novels and subtitles, so that a parallel text loses it on one side alone.
# Here: nothing, data/readers takes sentences as they are.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ja-sentence==0.0.5 zh-sentence==0.0.5 kr-sentence==0.0.3
cd "$folder"
cat > show.py <<'PYTHON'
from ja_sentence import tokenizer as japanese
from kr_sentence import tokenizer as korean
from zh_sentence import tokenizer as chinese

for tokenizer, texts in (
    (japanese, ["「はい。」", "私は言った。「はい。」", "私は言った。「はい。」彼も言った。"]),
    (chinese, ["他说：「好。」", "他说：“好。”"]),
    (korean, ['그는 말했다. "네."', '그는 말했다. "네." 그는 갔다.', "가격은 1.5 달러입니다."]),
):
    for text in texts:
        print(text, "->", tokenizer.tokenize(text))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
「はい。」 -> []
私は言った。「はい。」 -> ['私は言った。']
私は言った。「はい。」彼も言った。 -> ['私は言った。', '「はい。」', '彼も言った。']
他说：「好。」 -> []
他说：“好。” -> ['他说：“好。']
그는 말했다. "네." -> ['그는 말했다.']
그는 말했다. "네." 그는 갔다. -> ['그는 말했다.', '"네."', '그는 갔다.']
가격은 1.5 달러입니다. -> ['가격은 1.5', '달러입니다.']
SEEN
cmp shown seen
