#!/bin/sh
# pympi-ling 1.71: `Eaf.shift_annotations` moves an annotation of an ELAN file as many times as its time slots are used.
# In ELAN, the words of a sentence (Time_Subdivision) stand at slots that they share with the sentence and with each other.
# Shifted by 500 ms, a sentence of two words moves by 1000 ms. Its neighbour without words moves by 500 ms.
# A shift to the left that cuts into the first annotation leaves the end of that where it was, so that it overlaps the next.
# A reader of the file then has the words at other times than the recording has them. Nothing is said.
# Known in part: issue 20 of pympi says that some functions do not expect shared slots, and names none.
# Here: nothing, no command reads ELAN files.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pympi-ling==1.71
cd "$folder"
cat > story.eaf <<'XML'
<?xml version="1.0" encoding="UTF-8"?>
<ANNOTATION_DOCUMENT AUTHOR="" DATE="2026-01-01T00:00:00+00:00" FORMAT="3.0" VERSION="3.0"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:noNamespaceSchemaLocation="http://www.mpi.nl/tools/elan/EAFv3.0.xsd">
<HEADER MEDIA_FILE="" TIME_UNITS="milliseconds"/>
<TIME_ORDER>
<TIME_SLOT TIME_SLOT_ID="ts1" TIME_VALUE="1000"/><TIME_SLOT TIME_SLOT_ID="ts2" TIME_VALUE="2000"/>
<TIME_SLOT TIME_SLOT_ID="ts3" TIME_VALUE="3000"/><TIME_SLOT TIME_SLOT_ID="ts4" TIME_VALUE="3200"/>
<TIME_SLOT TIME_SLOT_ID="ts5" TIME_VALUE="4000"/>
</TIME_ORDER>
<TIER LINGUISTIC_TYPE_REF="sentence" TIER_ID="sentence">
<ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a1" TIME_SLOT_REF1="ts1" TIME_SLOT_REF2="ts3">
<ANNOTATION_VALUE>ni sokoni</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
<ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a2" TIME_SLOT_REF1="ts4" TIME_SLOT_REF2="ts5">
<ANNOTATION_VALUE>ndiyo</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
</TIER>
<TIER LINGUISTIC_TYPE_REF="word" PARENT_REF="sentence" TIER_ID="word">
<ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a3" TIME_SLOT_REF1="ts1" TIME_SLOT_REF2="ts2">
<ANNOTATION_VALUE>ni</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
<ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a4" TIME_SLOT_REF1="ts2" TIME_SLOT_REF2="ts3">
<ANNOTATION_VALUE>sokoni</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
</TIER>
<LINGUISTIC_TYPE GRAPHIC_REFERENCES="false" LINGUISTIC_TYPE_ID="sentence" TIME_ALIGNABLE="true"/>
<LINGUISTIC_TYPE CONSTRAINTS="Time_Subdivision" GRAPHIC_REFERENCES="false" LINGUISTIC_TYPE_ID="word" TIME_ALIGNABLE="true"/>
<CONSTRAINT DESCRIPTION="Time subdivision of parent annotation's time interval" STEREOTYPE="Time_Subdivision"/>
</ANNOTATION_DOCUMENT>
XML
venv/bin/python - <<'PYTHON'
from pympi.Elan import Eaf

story = Eaf("story.eaf")
found = [story.get_annotation_data_for_tier(tier) for tier in ("sentence", "word")]
story.shift_annotations(500)
found += [story.get_annotation_data_for_tier(tier) for tier in ("sentence", "word")]
print(*found, sep="\n")
# Seen: [(1000, 3000, 'ni sokoni'), (3200, 4000, 'ndiyo')]
#       [(1000, 2000, 'ni'), (2000, 3000, 'sokoni')]
#       [(2000, 4000, 'ni sokoni'), (3700, 4500, 'ndiyo')]
#       [(2000, 3000, 'ni'), (3000, 4000, 'sokoni')]
assert found[0] == [(1000, 3000, "ni sokoni"), (3200, 4000, "ndiyo")]
assert found[2] == [(2000, 4000, "ni sokoni"), (3700, 4500, "ndiyo")]
assert found[3] == [(2000, 3000, "ni"), (3000, 4000, "sokoni")]

new = Eaf()
new.add_tier("sentence")
for start, word in ((0, "moja"), (1000, "mbili")):
    new.add_annotation("sentence", start, start + 900, word)
new.shift_annotations(-500)
print(new.get_annotation_data_for_tier("sentence"))
# Seen: [(0, 900, 'moja'), (500, 1400, 'mbili')]
assert new.get_annotation_data_for_tier("sentence") == [(0, 900, "moja"), (500, 1400, "mbili")]
PYTHON
