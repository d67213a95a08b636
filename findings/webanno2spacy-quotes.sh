#!/bin/sh
# webanno2spacy 0.1.0 (PyPI): of a WebAnno file, all annotations from one quotation mark to the next are lost. Nothing is said.
# WebAnno TSV 3 (WebAnno, INCEpTION) has a line for each token, and quotes nothing. The package reads it as a CSV file with `"` as the
# mark that quotes a field. A token `"` then begins a field that goes on over the lines behind it, up to the next such token.
# In `Ana rief : " Bob ging mit Eva " und Ida lachte .`, the relations of Bob and Eva are gone, and that of Ida is there. So quoted
# speech, as of novels and news, has no annotations. The example in the package's own text has « and », which are read right.
# The summary has "A tool to convert WebAnno v3.x TSV files into spaCy v3.x Doc format". spacy was 3.8.7.
# Python's csv with QUOTE_NONE reads one line for each token, as the form is defined.
# Here: nothing, data/readers reads no WebAnno TSV.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet webanno2spacy==0.1.0 spacy==3.8.7 typer==0.15.4 click==8.1.8
cd "$folder"
cat > show.py <<'PYTHON'
import csv
from pathlib import Path

import spacy
from webanno2spacy import convert_rows

nlp = spacy.blank("de")
for left, right in ('""', "«»"):
    words = f"Ana rief : {left} Bob ging mit Eva {right} und Ida lachte .".split()
    text, lines, start = " ".join(words), [], 0
    for number, word in enumerate(words, start=1):
        label = "person" if word in {"Ana", "Bob", "Eva", "Ida"} else "_"
        kind, head = ("knows", "1-1") if label == "person" and number > 1 else ("_", "_")
        lines.append("\t".join([f"1-{number}", f"{start}-{start + len(word)}", word, label, kind, head]) + "\t\n")
        start += len(word) + 1
    file = Path("text.tsv")
    file.write_text(f"#FORMAT=WebAnno TSV 3.2\n\n\n#Text={text}\n" + "".join(lines), encoding="utf-8")
    for name, quoting in (("as the package reads", csv.QUOTE_MINIMAL), ("as it is defined", csv.QUOTE_NONE)):
        with file.open(encoding="utf-8") as content:
            doc = convert_rows(nlp, text, csv.reader(content, delimiter="\t", quotechar='"', quoting=quoting))
        print(left, name, sorted(text[one : one + 3] for one, other in doc._.rel))
PYTHON
"$folder/venv/bin/python" show.py > shown
cat shown
cat > seen <<'SEEN'
" as the package reads ['Ida']
" as it is defined ['Bob', 'Eva', 'Ida']
« as the package reads ['Bob', 'Eva', 'Ida']
« as it is defined ['Bob', 'Eva', 'Ida']
SEEN
cmp shown seen
