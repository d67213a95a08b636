#!/bin/sh
# thefuzz 0.22.1 (PyPI) and fuzzball 2.2.6 (npm): different Hindi words score 100, as if they were the same, and nothing is said.
# Both take a vowel sign for punctuation, and compare words without it. So दिन (day) and दान (gift) are 100, which are 67 with
# their vowels. Of the names मुनि, मीना and मन, `process.extract` gives मुनि 100 for a search of मीना, and names it first.
# Bengali, Tamil, Telugu, Burmese and Khmer have such signs too, and Thai has some.
# thefuzz does so in `extract` and in the scores of tokens, and fuzzball in all scores. Their READMEs speak of punctuation alone.
# Names, dictionaries and duplicates that are matched so are joined where they differ.
# In Unicode, vowel signs are marks that belong to their letter. rapidfuzz 3.14.6 drops them when it is asked to process text.
# Known in part: issue 29 of rapidfuzz is of Devanagari. It now processes no text by default, and thefuzz, which calls it, does.
# Here: nothing, no command matches text by likeness.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet thefuzz==0.22.1 rapidfuzz==3.14.6
cd "$folder"
npm install --silent --no-audit --no-fund fuzzball@2.2.6
"$folder/venv/bin/python" - > shown <<'PYTHON'
import rapidfuzz
from thefuzz import fuzz, process

print("thefuzz", process.extract("मीना", ["मुनि", "मीना", "मन"]))
for language, word, other in (
    ("hi", "दिन", "दान"),
    ("bn", "দিন", "দান"),
    ("ta", "பல்", "பால"),
    ("te", "పాలు", "పిల"),
    ("my", "စာ", "စီ"),
    ("km", "កា", "កី"),
    ("th", "มา", "มี"),
    ("de", "Tag", "Tor"),
):
    processed = rapidfuzz.fuzz.ratio(word, other, processor=rapidfuzz.utils.default_process)
    print(language, fuzz.token_sort_ratio(word, other), fuzz.ratio(word, other), round(processed), round(rapidfuzz.fuzz.ratio(word, other)))
PYTHON
cat > show.mjs <<'NODE'
import * as fuzz from "fuzzball";

for (const [language, word, other] of [
  ["hi", "दिन", "दान"],
  ["bn", "দিন", "দান"],
  ["ta", "பல்", "பால"],
  ["th", "มา", "มี"],
  ["de", "Tag", "Tor"],
]) {
  console.log("fuzzball", language, fuzz.ratio(word, other), fuzz.ratio(word, other, { full_process: false }));
}
NODE
node show.mjs >> shown
cat shown
cat > seen <<'SEEN'
thefuzz [('मुनि', 100), ('मीना', 100), ('मन', 80)]
hi 100 67 100 67
bn 100 67 100 67
ta 80 67 80 67
te 100 57 100 57
my 100 50 100 50
km 100 50 100 50
th 67 50 67 50
de 33 33 33 33
fuzzball hi 100 67
fuzzball bn 100 67
fuzzball ta 80 67
fuzzball th 67 50
fuzzball de 33 33
SEEN
cmp shown seen
