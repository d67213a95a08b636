#!/bin/sh
# opustools 1.9.0 (PyPI): of a file of sentence alignments without line breaks, opus_read writes the first document alone.
# In XML a line break between elements means nothing, and tools that shorten XML remove it. opus_read reads line by line. At the end
# of the first document it leaves the line, and with it all other documents. It ends with status 0, and nothing is said.
# Words inside an inline element of a sentence are lost in both languages: "Press <b>the red</b> button." is "Press  button."
# The option --preserve_inline_tags, whose help says that inline tags are kept, changes nothing about it. It keeps <time/> alone.
# So a parallel corpus has fewer pairs, or pairs without their most stressed words.
# Here: nothing, data/readers reads what opus_read has written. It cannot know what is missing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet opustools==1.9.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import subprocess
import sys
import zipfile
from pathlib import Path

documents = {
    "a": {"de": ["Eins.", "Den <b>roten</b> Knopf drücken."], "en": ["One.", "Press <b>the red</b> button."]},
    "b": {"de": ["Drei.", "Vier."], "en": ["Three.", "Four."]},
}
for language in ("de", "en"):
    with zipfile.ZipFile(f"{language}.zip", "w") as packed:
        for name, texts in documents.items():
            sentences = "\n".join(f'<s id="{at}">{text}</s>' for at, text in enumerate(texts[language], start=1))
            packed.writestr(f"C/raw/{language}/{name}.xml", f'<?xml version="1.0"?>\n<text>\n{sentences}\n</text>\n')
lines = ['<?xml version="1.0"?>', '<cesAlign version="1.0">']
for name in documents:
    lines.append(f'<linkGrp targType="s" fromDoc="de/{name}.xml.gz" toDoc="en/{name}.xml.gz">')
    lines += [f'<link xtargets="{at};{at}" id="SL{at}"/>' for at in (1, 2)]
    lines.append("</linkGrp>")
lines.append("</cesAlign>")

command = "-d C -s de -t en -p raw -sz de.zip -tz en.zip -wm moses -q -w pairs.txt -af links.xml"
first = ["Eins.\tOne.", "Den  Knopf drücken.\tPress  button."]
both = [*first, "Drei.\tThree.", "Vier.\tFour."]
for between, options, expected in (("\n", [], both), ("", [], first), ("\n", ["--preserve_inline_tags"], both)):
    Path("links.xml").write_text(between.join(lines) + "\n", encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).with_name("opus_read"), *command.split(), *options], capture_output=True, check=True
    )
    found = Path("pairs.txt").read_text(encoding="utf-8").splitlines()
    print([between], options, found, done.returncode)
    # Seen, of the file without line breaks: [''] [] ['Eins.\tOne.', 'Den  Knopf drücken.\tPress  button.'] 0
    assert found == expected, found
PYTHON
