#!/bin/sh
# ersatz 1.0.0 (PyPI): no sentence ends at the Chinese and Japanese marks "？" and "！", whatever its model says. Nothing is said.
# Its page on PyPI calls it language-agnostic. A rule names the places where a sentence may end, and a model chooses among them alone.
# The default rule ("multilingual") has the full stop of Chinese and Hindi, but not the question and exclamation marks that Chinese and
# Japanese write (U+FF1F, U+FF01), and no mark of Burmese (။), Amharic (።) and Armenian (։).
# So a question and its answer are one sentence, and a text of these three languages is one sentence as a whole.
# Here: nothing, data/readers takes sentences as they are.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps ersatz==1.0.0
"$folder/venv/bin/python" - <<'PYTHON'
from ersatz.candidates import MultilingualPunctuation

may_end = MultilingualPunctuation()
known = [("他走了。", "我也走了。"), ("वह गया।", " मैं भी।"), ("Gone?", " Yes."), ("ذهب؟", " نعم.")]
unknown = [("他走了？", "走了。"), ("快来！", "他走了。"), ("本当？", "はい。"), ("သွားပြီ။", "သူ"), ("ሄደ።", " እሷ"), ("Գնաց։", " Նա")]
print([may_end(*sides) for sides in known], [may_end(*sides) for sides in unknown])
# Seen: [True, True, True, True] [False, False, False, False, False, False]
assert all(may_end(*sides) for sides in known)
assert not any(may_end(*sides) for sides in unknown)
PYTHON
