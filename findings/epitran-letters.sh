#!/bin/sh
# epitran 1.35.3 (PyPI): letters of a language that it supports stay as they are in IPA, and panphon leaves them out. Nothing is said.
# In Urdu, ک, ہ, ھ and ی are such, four of the most frequent: "کیا" (what) becomes "کیɑː", and "یہ" (this) stays as it is.
# In Persian it is پ, in Tajik э, ю and я, in Azerbaijani in Cyrillic letters ј, and in Hindi ऑ. All stand in CLDR's alphabets.
# Croatian, Latvian and Nynorsk g becomes the letter g (U+0067). IPA has ɡ (U+0261), which the other languages get.
# panphon 0.22.2, of the same authors, knows neither: of "grad" (town) it reads "rad", and of "یہ" nothing.
# Turkish I becomes [i] in place of [ɯ], so that Irmak, a name, and ırmak (river) differ. Azerbaijani I is wrong too.
# French Noël is "nɔl", and Ukrainian п'ять (five) "p'ɑtʲ", whose apostrophe stands for [j].
# A distance of sounds, or a lexicon for alignment or speech, is then made of the letters that are left.
# The README names languages whose spelling is hard to read, French and Arabic among them, and no letter that is left out.
# Known in part: issue 247 of epitran is of Arabic ة.
# Here: nothing, no command reads phonetic text.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet epitran==1.35.3 panphon==0.22.2
"$folder/venv/bin/python" - > "$folder/shown" 2> "$folder/log" <<'PYTHON'
from epitran import Epitran
from panphon import FeatureTable

known = FeatureTable().ipa_segs
for language, words in (
    ("urd-Arab", ("کیا", "یہ", "گھر")),
    ("fas-Arab", ("پدر", "کتاب")),
    ("tgk-Cyrl", ("яка", "дуюм", "калон")),
    ("aze-Cyrl", ("ајаг",)),
    ("hin-Deva", ("ऑफ़िस", "डॉक्टर")),
    ("hrv-Latn", ("grad",)),
    ("lav-Latn", ("gads",)),
    ("nno-Latn", ("god",)),
    ("pol-Latn", ("góra",)),
    ("tur-Latn", ("Irmak", "ırmak")),
    ("aze-Latn", ("Işıq", "ışıq")),
    ("fra-Latn", ("Noël",)),
    ("ukr-Cyrl", ("п'ять",)),
):
    for word in words:
        sounds = Epitran(language).transliterate(word)
        print(language, word, sounds, "".join(known(sounds)) or "nothing")
PYTHON
cat "$folder/shown"
cat > "$folder/seen" <<'SEEN'
urd-Arab کیا کیɑː ɑː
urd-Arab یہ یہ nothing
urd-Arab گھر ɡھr ɡr
fas-Arab پدر پdr dr
fas-Arab کتاب ktɒb ktɒb
tgk-Cyrl яка яkæ kæ
tgk-Cyrl дуюм duюm dum
tgk-Cyrl калон kælɔn kælɔn
aze-Cyrl ајаг ɑјɑɡ ɑɑɡ
hin-Deva ऑफ़िस ऑfis fis
hin-Deva डॉक्टर ɖɔkʈər ɖɔkʈər
hrv-Latn grad grad rad
lav-Latn gads gat͡s at͡s
nno-Latn god guːd uːd
pol-Latn góra ɡura ɡura
tur-Latn Irmak iɾmak iɾmak
tur-Latn ırmak ɯɾmak ɯɾmak
aze-Latn Işıq ɪʃɯɡ ɪʃɯɡ
aze-Latn ışıq ɯʃɯɡ ɯʃɯɡ
fra-Latn Noël nɔl nɔl
ukr-Cyrl п'ять p'ɑtʲ pɑtʲ
SEEN
cmp "$folder/shown" "$folder/seen"
