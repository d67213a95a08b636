#!/bin/sh
# pylangacq 0.23.0 with rustling 0.9.0: an ELAN file that it writes from a transcript in CHAT is no XML, and nothing is said.
# In CHAT, the times of an utterance stand at its end between two control characters (U+0015), as in most of TalkBank's corpora.
# to_elan_strs makes of them the times of the annotation, and leaves them in its text too. XML allows no U+0015.
# So other readers refuse the file. Its own reads it with the times as words of each sentence: "what's that ? 0_1500".
# A word list of the language then has times in it. Written by to_srt_strs, the same transcript has the sentence alone.
# A transcript without times becomes XML.
# Here: nothing, no command reads CHAT or ELAN files.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pylangacq==0.23.0 rustling==0.9.0
"$folder/venv/bin/python" - <<'PYTHON'
from xml.etree import ElementTree

import pylangacq
from rustling.elan import ELAN

head = "@UTF8\n@Begin\n@Languages:\teng\n@Participants:\tMOT Mother\n@ID:\teng|corpus|MOT||||||Mother|||\n"
xml = {}
for name, times in (("times", " \x150_1500\x15"), ("none", "")):
    transcript = pylangacq.CHAT.from_strs([f"{head}*MOT:\twhat's that ?{times}\n@End\n"])
    elan = transcript.to_elan_strs()[0]
    try:
        ElementTree.fromstring(elan)
        xml[name] = "XML"
    except ElementTree.ParseError as error:
        xml[name] = str(error)
    print(name, xml[name], [line.strip() for line in elan.splitlines() if "that" in line])
    if times:
        print([line for line in transcript.to_srt_strs()[0].splitlines() if "that" in line])
        again = [line for line in ELAN.from_strs([elan]).to_srt_strs()[0].splitlines() if "that" in line]
        print(again)
# Seen: times not well-formed (invalid token): line 11, column 53 [... that ? \x150_1500\x15</ANNOTATION_VALUE>']
#       ["what's that ?"]
#       ["what's that ? \x150_1500\x15"]
#       none XML [...]
assert xml["times"].startswith("not well-formed") and xml["none"] == "XML"
assert again == ["what's that ? \x150_1500\x15"]
PYTHON
