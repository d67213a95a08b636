#!/bin/sh
# apertium-streamparser 5.0.2 (PyPI): the second half of a multiword becomes a tag, and its lemma is the first half alone.
# In Apertium's stream, a verb that is inflected in its middle has its last words behind the tags:
# "^took out/take<vblex><past># out$", as lttoolbox 3.7.1 writes it. So is Spanish "tener en cuenta" (take into account).
# The lemma is read as "take", with the tags "vblex", "past" and "# out".
# `reading_to_string` writes "take<vblex><past><# out>", which no dictionary of Apertium knows.
# So a list of words with lemmas, or a lexicon for alignment, has "take" where the text has "take out". Nothing is said.
# yasp 0.1.1, another reader of the form, has a field for these words.
# The README says that it parses Apertium's stream format, and shows no multiword.
# Here: nothing, data/marks.tsv names lines of Apertium's stream, so that they are exported without tags.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apertium-streamparser==5.0.2 yasp==0.1.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import yasp
from streamparser import parse, reading_to_string

seen = {
    "^took out/take<vblex><past># out$": ("take", ["vblex", "past", "# out"], "take<vblex><past><# out>", " out"),
    "^tuvo en cuenta/tener<vblex><ifi><p3><sg># en cuenta$": (
        "tener",
        ["vblex", "ifi", "p3", "sg", "# en cuenta"],
        "tener<vblex><ifi><p3><sg><# en cuenta>",
        " en cuenta",
    ),
}
for stream, expected in seen.items():
    [[reading]] = [unit.readings for unit in parse(stream)]
    [word] = reading
    [(_, (_, other))] = yasp.stream.parse(stream)
    found = (word.baseform, word.tags, reading_to_string(reading), *other["INVARIABLE-PART1"])
    print(*found, sep=" | ")
    # Seen: take | ['vblex', 'past', '# out'] | take<vblex><past><# out> |  out
    #       tener | ['vblex', 'ifi', 'p3', 'sg', '# en cuenta'] | tener<vblex><ifi><p3><sg><# en cuenta> |  en cuenta
    assert found == expected, found
PYTHON
