#!/bin/sh
# chamd 0.5.13 (PyPI): of CHAT transcripts, words with an apostrophe or hyphen are left in part, and letters are lost. Nothing is said.
# In CHAT, "[/]" and "[//]" stand behind a word that the speaker took back, and `ChatReader` removes both. It knows letters alone as
# parts of a word, so that "j'ai [/] j'ai faim" becomes "j' j'ai faim", "'k [/] 'k wil" (Dutch) "' 'k wil", and "arc-en-ciel [/]"
# "arc-en-". A word of Hindi stays whole, as it ends in a vowel sign. <...> around the words helps.
# ʔ and ʰ, a dot below and a macron of their own (U+0323, U+0304), and Greek Ϋ and Ἡ are taken for signs of CHAT-CA and become blanks:
# "ʔana" (I) is "ana". A real word that replaces an error, "hond [:: poes]", becomes ": poes".
# The summary speaks of "cleaning of CHILDES CHA files". pylangacq 0.23.0 with rustling 0.9.0 keeps what was meant in these lines.
# Half words in children's speech change counts of words, length of utterances and what a parser makes of them.
# Here: nothing, data/readers reads no CHAT.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet chamd==0.5.13 pylangacq==0.23.0 rustling==0.9.0
cd "$folder"
cat > lines <<'LINES'
j'ai [/] j'ai faim .
<j'ai> [/] j'ai faim .
l'ami [//] le copain vient .
it's [/] it's mine .
'k [/] 'k wil .
arc-en-ciel [/] arc-en-ciel .
भाषा [/] भाषा .
chien [/] chien mange .
ʔana ʔaf .
ἡ Ἡρα .
hond [:: poes] loopt .
LINES
cat > show.py <<'PYTHON'
import pylangacq
from chamd import ChatReader

lines = open("lines", encoding="utf-8").read().splitlines()
head = "@UTF8\n@Begin\n@Languages:\tfra\n@Participants:\tCHI Target_Child\n@ID:\tfra|corpus|CHI||||||Target_Child|||\n"
content = head + "".join(f"*CHI:\t{line}\n" for line in lines) + "@End\n"
found = [" ".join(line.text.split()) for line in ChatReader().read_string(content, "child.cha").lines]
other = [" ".join(token.word for token in said.tokens) for said in pylangacq.CHAT.from_strs([content]).utterances()]
assert len(lines) == len(found) == len(other)
for line, one, two in zip(lines, found, other):
    print(line, "|", one, "|", two)
PYTHON
"$folder/venv/bin/python" show.py > shown
cat shown
cat > seen <<'SEEN'
j'ai [/] j'ai faim . | j' j'ai faim . | j'ai faim .
<j'ai> [/] j'ai faim . | j'ai faim . | j'ai faim .
l'ami [//] le copain vient . | l' le copain vient . | le copain vient .
it's [/] it's mine . | it' it's mine . | it's mine .
'k [/] 'k wil . | ' 'k wil . | 'k wil .
arc-en-ciel [/] arc-en-ciel . | arc-en- arc-en-ciel . | arc-en-ciel .
भाषा [/] भाषा . | भाषा भाषा . | भाषा .
chien [/] chien mange . | chien mange . | chien mange .
ʔana ʔaf . | ana af . | ʔana ʔaf .
ἡ Ἡρα . | ἡ ρα . | ἡ Ἡρα .
hond [:: poes] loopt . | : poes loopt . | hond loopt .
SEEN
cmp shown seen
