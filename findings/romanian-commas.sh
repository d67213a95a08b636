#!/bin/sh
# nltk 3.10.4 and py-rust-stemmers 0.1.8 (PyPI), lunr-languages 1.22.0, @orama/stemmers 3.1.18 and snowball-stemmers 0.6.0 (npm):
# their Romanian stemmers know the letters ş and ţ with a cedilla alone. Romanian writes ș and ț, with a comma.
# Old files have the first, as older character sets did. Text of today has the second.
# So the endings of "informație" (information) are left: its stem is "informaț" with a comma, and "inform" with a cedilla.
# "informa" (to inform) has "inform", so that verb and noun share a stem in the old spelling alone.
# All words with a ș or ț that is kept have two stems: a search for "națiune" does not find the same word in an older text.
# Nothing is said. snowballstemmer 3.1.1 gives both spellings one stem.
# Here: nothing, no command cuts words to stems.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nltk==3.10.4 py-rust-stemmers==0.1.8 snowballstemmer==3.1.1
cd "$folder"
npm install --silent --no-audit --no-fund lunr@2.3.9 lunr-languages@1.22.0 @orama/stemmers@3.1.18 snowball-stemmers@0.6.0
cat > show.py <<'PYTHON'
import snowballstemmer
from nltk.stem.snowball import SnowballStemmer
from py_rust_stemmers import SnowballStemmer as RustStemmer

stemmers = {
    "nltk": SnowballStemmer("romanian").stem,
    "py-rust-stemmers": RustStemmer("romanian").stem_word,
    "snowballstemmer": snowballstemmer.stemmer("romanian").stemWord,
}
words = ["informație", "informaţie", "informa", "națiunea", "naţiunea", "situațiile", "situaţiile"]
for name, stem in stemmers.items():
    print(name, *map(stem, words))
PYTHON
cat > show.cjs <<'NODE'
const lunr = require("lunr");
require("lunr-languages/lunr.stemmer.support")(lunr);
require("lunr-languages/lunr.ro")(lunr);
const orama = require("@orama/stemmers/romanian");
const snowball = require("snowball-stemmers").newStemmer("romanian");

const stemmers = {
  "lunr-languages": (word) => lunr.ro.stemmer(new lunr.Token(word)).toString(),
  "@orama/stemmers": (word) => orama.stemmer(word),
  "snowball-stemmers": (word) => snowball.stem(word),
};
const words = ["informație", "informaţie", "informa", "națiunea", "naţiunea", "situațiile", "situaţiile"];
for (const [name, stem] of Object.entries(stemmers)) console.log(name, ...words.map(stem));
NODE
venv/bin/python show.py > shown
node show.cjs >> shown
cat shown
cat > seen <<'SEEN'
nltk informaț inform inform națiun naţiun situaț situ
py-rust-stemmers informaț inform inform națiun naţiun situaț situ
snowballstemmer inform inform inform națiun națiun situ situ
lunr-languages informaț inform inform națiun naţiun situaț situ
@orama/stemmers informaț inform inform națiun naţiun situaț situ
snowball-stemmers informaț inform inform națiun naţiun situaț situ
SEEN
cmp shown seen
