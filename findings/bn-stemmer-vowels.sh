#!/bin/sh
# bn-stemmer 1.0.0 (PyPI): nouns become other words, and nothing is said. দেশে and দেশের (in, of the country) have the stem "দাশা".
# If a word's second and fourth characters are the vowel sign ে, it makes both of them া, and drops all that follows.
# That fits a few verbs. It also changes ছেলেদের (of the boys) to "ছালা", শেষে (at the end) to "শাষা", and মেঘে (in the cloud) to "মাঘা".
# হাতে (in the hand) and কাজে (at work) keep their ending.
# Importing it prints eleven stems on the standard output, which then stand first in a pipe's data.
# Search, and lexicons by stems, then lose common nouns.
# Here: nothing, no command stems.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet bn-stemmer==1.0.0
cd "$folder"
cat > show.py <<'PYTHON'
from stemmer import BanglaStemmer

print("imported")
for word in "দেশে দেশের ছেলেদের শেষে মেঘে হাতে কাজে".split():
    print(word, BanglaStemmer().stem(word))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
খাচ্ছি
যাচ্ছি
হচ্ছিল
হচ্ছে
যাচ্ছে
যাচ্ছিস
খাচ্ছিস
যাচ্ছিলেন
খাচ্ছিলেন
যাচ্ছ
খাচ্ছ
imported
দেশে দাশা
দেশের দাশা
ছেলেদের ছালা
শেষে শাষা
মেঘে মাঘা
হাতে হাতে
কাজে কাজে
SEEN
cmp shown seen
