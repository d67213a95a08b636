#!/bin/sh
# tbxtools 0.1.0 (PyPI): a term base of TBX's version 2 loses the notes of its terms on the way to version 3, and nothing is said.
# In version 2 (ISO 30042:2008) a term stands alone (<tig>), or in a group with its notes (<ntig> and <termGrp>). The converter
# moves the term out of the group and removes the group with all else in it: part of speech, gender, whether a term is preferred
# or deprecated, and the parts of a term of several words.
# Of a term in <tig> all are kept. Version 3 (ISO 30042:2019) has a place for them, <termSec>, for both.
# The module's text says that it converts files of TBX-Default "to the newest TBX standard", and names nothing that is left out.
# So a deprecated term is one like the others after it: a seed dictionary then has words that its makers advise against.
# Here: nothing, data/readers reads no TBX. Export a dictionary as TSV.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tbxtools==0.1.0
"$folder/venv/bin/python" - <<'PYTHON'
import xml.etree.ElementTree as ElementTree

from tbxtools import TBX

NOTES = '<termNote type="partOfSpeech">noun</termNote><termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote>'
BASE = f"""<?xml version="1.0" encoding="UTF-8"?>
<martif type="TBX" xml:lang="en">
<martifHeader><fileDesc><sourceDesc><p>Words of schools</p></sourceDesc></fileDesc></martifHeader>
<text><body><termEntry id="c1">
<langSet xml:lang="sw"><ntig><termGrp><term>msahafu</term>{NOTES}</termGrp></ntig></langSet>
<langSet xml:lang="en"><tig><term>codex</term>{NOTES}</tig></langSet>
</termEntry></body></text>
</martif>"""


def read(text):
    language = "{http://www.w3.org/XML/1998/namespace}lang"
    sections = [node for node in ElementTree.fromstring(text).iter() if language in node.attrib and node.tag[-3:] in ("Set", "Sec")]
    return {node.get(language): [leaf.text for leaf in node.iter() if leaf.tag.endswith(("term", "termNote"))] for node in sections}


whole = ["noun", "deprecatedTerm-admn-sts"]
before, after = read(BASE), read(TBX(BASE).convert2to3(schemas_js={}))
print(before, after)
# Seen: {'sw': ['msahafu', 'noun', 'deprecatedTerm-admn-sts'], 'en': ['codex', 'noun', 'deprecatedTerm-admn-sts']}
#       {'sw': ['msahafu'], 'en': ['codex', 'noun', 'deprecatedTerm-admn-sts']}
assert before == {"sw": ["msahafu", *whole], "en": ["codex", *whole]}
assert after == {"sw": ["msahafu"], "en": ["codex", *whole]}
PYTHON
