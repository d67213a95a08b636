#!/bin/sh
# blingfire 0.1.8: text_to_sentences ends a sentence at the full stops of Chinese (。) and Urdu (۔), but not at those of Bengali and
# Hindi (।), Burmese (။), Khmer (។), Amharic (።) and Armenian (։). A whole paragraph comes back as one sentence, without a word.
# It also imports numpy, which its wheel does not require. Here: sentences are read one a line, and never split.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet blingfire==0.1.8 numpy==2.2.6
"$folder/venv/bin/python" - <<'PYTHON'
from blingfire import text_to_sentences

for text, seen in (
    ("我吃饭。他看书。", 2),
    ("میں کھاتا ہوں۔ وہ پڑھتا ہے۔", 2),
    ("আমি ভাত খাই। সে বই পড়ে।", 1),
    ("मैं चावल खाता हूँ। वह किताब पढ़ता है।", 1),
    ("ကျွန်တော်စားတယ်။ သူဖတ်တယ်။", 1),
    ("ខ្ញុំស៊ីបាយ។ គាត់អាន។", 1),
    ("እኔ እበላለሁ። እሱ ያነባል።", 1),
    ("Ես ուտում եմ։ Նա կարդում է։", 1),
):
    sentences = text_to_sentences(text).split("\n")
    print(len(sentences), text)
    assert len(sentences) == seen, sentences
PYTHON
