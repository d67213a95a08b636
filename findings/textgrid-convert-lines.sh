#!/bin/sh
# textgrid-convert 1.2.0 (PyPI): the last subtitle of a file is lost on the way to a Praat TextGrid, and nothing is said.
# Of YouTube's form SBV, the last subtitle is not there if no blank line is behind it. A blank line parts subtitles in this form.
# Of SubRip, the last one loses its second line if this line has no letter of a to z: a text in Hindi, Arabic or Russian.
# A quotation mark in the text is written as it is, where Praat's form has two. Praat reads no file with 'she said "no" to me' in it.
# The package calls itself a converter of SBV and SRT, and its README names none of this. It also imports pytest, which its package does not require.
# pysubs2 1.8.1 reads all of both files.
# Transcripts are aligned with sound, and translations with them, in TextGrids. The last pair of each file is then a wrong one.
# Here: nothing, data/readers reads no subtitles and no TextGrid.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet textgrid-convert==1.2.0 pytest==8.4.2 pysubs2==1.8.1 praat-parselmouth==0.4.7 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import parselmouth
import pysubs2
from parselmouth.praat import call
from textgrid_convert.sbvParser import sbvParser
from textgrid_convert.srtParser import srtParser

SRT = """1
00:00:01,000 --> 00:00:02,000
she said "no" to me

2
00:00:03,000 --> 00:00:04,000
Я её не видел,
её там не было.
"""
SBV = "0:00:01.000,0:00:02.000\nHabari\n\n0:00:03.000,0:00:04.000\nKwaheri\n"

found = [[entry["text"] for entry in sbvParser(text).transcription_dict.values()] for text in (SBV, SBV + "\n")]
print(found)
# Seen: [['Habari'], ['Habari', 'Kwaheri']]
assert found == [["Habari"], ["Habari", "Kwaheri"]]
parser = srtParser(SRT)
found = [entry["text"] for entry in parser.transcription_dict.values()]
print(found)
# Seen: ['she said "no" to me', 'Я её не видел,']
assert found == ['she said "no" to me', "Я её не видел,"]
texts = [[event.plaintext for event in pysubs2.SSAFile.from_string(text)] for text in (SBV, SRT)]
print(texts)
# Seen: [['Habari', 'Kwaheri'], ['she said "no" to me', 'Я её не видел,\nеё там не было.']]
assert texts == [["Habari", "Kwaheri"], ['she said "no" to me', "Я её не видел,\nеё там не было."]]

with open("out.TextGrid", "w", encoding="utf-8") as file:
    file.write(parser.to_textgrid())
try:
    read = call(parselmouth.read("out.TextGrid"), "Get label of interval", 1, 1)
except parselmouth.PraatError as error:
    read = str(error).splitlines()[0]
print(read)
# Seen: Character n following quote (line 18). End of string or undoubled quote?
assert read.startswith("Character n following quote")
PYTHON
