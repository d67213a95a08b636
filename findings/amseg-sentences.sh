#!/bin/sh
# amseg 2.3 (PyPI): of Amharic text, `tokenize_sentence` loses what stands after the last mark of punctuation.
# Of "ልጁ ውሃ ጠጣ። እሷ መጣች", two sentences, the first alone is returned. A line that ends in no mark is most often a title or a
# list. A line break becomes a sentence of its own, "።", which the text does not have. Nothing is said.
# `amharic_tokenizer` parts the first full stop (።) of a text from its word, and none after it: "መጣች።" stays one word, as long as
# no other mark comes between. It remembers the last mark, in order to keep "::" together, and never forgets it.
# `AmharicRomanizer` writes a blank behind ኔ (né), so that ዘመኔን (my time) becomes "zamäné n".
# `AmharicNormalizer` writes ኅ (h) as ሃ (ha), since it has two lines for this letter: ኅብረት (union) is ሃብረት. The usual form is ህብረት.
# In parallel text, lines are then missing on one side, and a word has two spellings, with and without a full stop.
# amseg also imports pytesseract and pdf2image, which its package does not require.
# Here: nothing, data/words.py has a splitter of its own, and sentences are read one a line.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet amseg==2.3 pytesseract==0.3.13 pdf2image==1.17.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

warnings.simplefilter("ignore")
from amseg.amharicNormalizer import AmharicNormalizer
from amseg.amharicRomanizer import AmharicRomanizer
from amseg.amharicSegmenter import AmharicSegmenter

segmenter = AmharicSegmenter([], [])
sentences = segmenter.tokenize_sentence("ልጁ ውሃ ጠጣ። እሷ መጣች")
print(sentences)
# Seen: ['ልጁ ውሃ ጠጣ።']
assert sentences == ["ልጁ ውሃ ጠጣ።"]
sentences = segmenter.tokenize_sentence("ልጁ ውሃ ጠጣ።\nእሷ መጣች።")
print(sentences)
# Seen: ['ልጁ ውሃ ጠጣ።', '።', 'እሷ መጣች።']
assert sentences == ["ልጁ ውሃ ጠጣ።", "።", "እሷ መጣች።"]
words = segmenter.amharic_tokenizer("ልጁ ውሃ ጠጣ። እሷ ዛሬ መጣች። እኛ ሄድን።")
print(words)
# Seen: ['ልጁ', 'ውሃ', 'ጠጣ', '።', 'እሷ', 'ዛሬ', 'መጣች።', 'እኛ', 'ሄድን።']
assert words == ["ልጁ", "ውሃ", "ጠጣ", "።", "እሷ", "ዛሬ", "መጣች።", "እኛ", "ሄድን።"]
latin, normal = AmharicRomanizer.romanize("ዘመኔን"), AmharicNormalizer.normalize("ኅብረት")
print(latin, "|", normal)
# Seen: zamäné n | ሃብረት
assert (latin, normal) == ("zamäné n", "ሃብረት")
PYTHON
