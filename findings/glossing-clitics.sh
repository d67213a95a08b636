#!/bin/sh
# glossing 1.0.9 (PyPI): the morphemes and glosses of an interlinear text are of unequal length where a clitic is.
# The Leipzig rules part affixes by "-" and clitics by "=". `glosses_list` parts at both, `morphemes_list` at "-" alone.
# "ni-na-soma=ko" has three morphemes, and "1SG-PRS-read=LOC" four glosses. Linked one to one, each later gloss is one too far.
# `as_dict` writes the glosses in place of the parts of speech, so that these are lost when an IGT is written and read again.
# `evaluate_glosses` counts the borders of words ([SEP]) as grammatical morphemes. Five wrong glosses of five have an F1 of 1.0 for
# these, although the sentence has none. If a sentence has no gloss at all, its error rate is its number of words. All others are
# at most 1, as the code's own comment says. The mean of five right words and five missing ones is so 2.5, and not 0.5.
# Nothing is said. Glosses are word links of a language to English, and this package scores models that predict them.
# It also imports regex, which its package does not require.
# Here: nothing, no command reads interlinear text.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet glossing==1.0.9 regex==2025.11.3
cd "$folder"
cat > text.igt <<'IGT'
\t ninasomako
\m ni-na-soma=ko
\p PRO-TAM-V=CL
\g 1SG-PRS-read=LOC
\l I read there.
IGT
"$folder/venv/bin/python" - <<'PYTHON'
from glossing import IGT, evaluate_glosses, load_igt_file

read = load_igt_file("text.igt")[0]
print(read.morphemes_list, read.glosses_list)
# Seen: ['ni', 'na', 'soma=ko'] ['1SG', 'PRS', 'read', 'LOC']
assert read.morphemes_list == ["ni", "na", "soma=ko"]
assert read.glosses_list == ["1SG", "PRS", "read", "LOC"]
again = IGT.from_dict(read.as_dict())
print(read.pos_glosses, again.pos_glosses)
# Seen: PRO-TAM-V=CL 1SG-PRS-read=LOC
assert (read.pos_glosses, again.pos_glosses) == ("PRO-TAM-V=CL", "1SG-PRS-read=LOC")

wrong = evaluate_glosses(["house see dog water go"], ["tree hear cat fire come"])["morphemes"]
print(wrong["accuracy"]["micro"], wrong["classes"]["gram"]["f1"])
# Seen: 0.0 1.0
assert (wrong["accuracy"]["micro"], wrong["classes"]["gram"]["f1"]) == (0.0, 1.0)
gold = ["tree hear cat fire come", "house see dog water go"]
rates = [
    evaluate_glosses([gold[0], other], gold)["words"]["error_rate"] for other in ("tree hear cat fire come", "")
]
print(*rates)
# Seen: 0.5 2.5
assert rates == [0.5, 2.5]
PYTHON
