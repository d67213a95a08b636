#!/bin/sh
# kokosznicka 0.2.6 (PyPI): Polish words that it cuts into syllables come out with other letters, and nothing is said.
# "autobus" is "a-ĺto-bus", "pauza" is "pa-ĺza", and "linia" is "liň-ia". Polish has no ĺ and no ň: they stand for the u of a
# diphthong and for a soft n while it works, and are not always put back.
# A capital is lost or doubled: "Dzisiaj" is "dzi-siaj", "Kino" is "ki-no", "Czesław" is "CZes-ław" and "Szymon" is "SZy-mon".
# Of 40 usual words here, 20 are other ones when the hyphens are taken out again. pyphen 0.18.1 changes none.
# The summary calls it a "simple and effective syllabificator for the Polish language".
# Subword units, readability and rhymes are counted from syllables. A word with a ĺ in it is in no dictionary.
# Here: nothing, no command cuts words into syllables.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kokosznicka==0.2.6 pyphen==0.18.1
"$folder/venv/bin/python" - <<'PYTHON'
from kokosznicka import Kokosznicka
from pyphen import Pyphen

usual = Pyphen(lang="pl_PL")
words = """
autobus autor autostrada pauza neutralny linia opinia kolonia ironia Australia Hiszpania Japonia
Dzisiaj Dzień Kino Nie Czesław Szymon Rzym Chopin
restauracja sauna Europa reumatyzm armia zdanie pytanie mieszkanie niedziela nigdy
Anna Ziemia Sierpień Giewont siedem zima cicho muzeum kiosk chleb
""".split()
found = {word: Kokosznicka.hyphenate(word) for word in words}
changed = [word for word in words if found[word].replace("-", "") != word]
print(len(words), len(changed), *[found[word] for word in changed])
# Seen: 40 20 a-ĺto-bus a-ĺtor a-ĺto-stra-da pa-ĺza ne-ĺtral-ny liň-ia ...
assert changed == words[:20], changed
assert [found[word] for word in ("autobus", "pauza", "linia")] == ["a-ĺto-bus", "pa-ĺza", "liň-ia"]
assert [found[word] for word in ("Dzisiaj", "Kino", "Czesław", "Szymon")] == ["dzi-siaj", "ki-no", "CZes-ław", "SZy-mon"]
assert all(usual.inserted(word).replace("-", "") == word for word in words)
PYTHON
