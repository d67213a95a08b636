"""Runs of the recipes that several tests look at; each is made once, and no test changes its folder."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.recipe import command, make_files, on_files, output_of
from support.tiny import SENTENCES

from hf_xalign.recipes import fao, mao, mapping, ppa
from hf_xalign.record import read_record

ENGLISH = [english for _, english, _ in SENTENCES]
LABELLED = [
    {"tokens": ["the", "cat", "is", "open"], "labels": ["O", "B-A", "O", "O"]},
    {"tokens": ["open", "the", "house", "file"], "labels": ["O", "O", "B-B", "I-B"]},
    {"tokens": ["no", "dog"], "labels": ["O", "B-A"]},
]
LINES = {
    # Parallel text, dictionaries, and text in one language.
    "dict.txt": ["the\tdie", "the\tdas", "cat\tkatze", "dog\thund", "house\thaus", "open\töffnen"],
    "en-de.txt": ["a\tä", "b\tö", "c\tc", "d\tü"],
    "german.txt": ["die katze schläft", "der hund ist groß"],
    "french.tsv": ["fr\ten", "le chat\tthe cat", "le chien\tthe dog"],
    "holes.tsv": ["de\ten", "die katze\tthe cat", "der hund\t"],
    "pairs.tsv": [f"{german} {k}\t{english} {k}" for k, (german, english, _) in enumerate(SENTENCES * 3)],
    "en.txt": [f"{text} ." for text in ENGLISH * 6],
    "de.txt": [german for german, _, _ in SENTENCES * 6],
    "held.txt": [f"{text} ." for text in ENGLISH * 3],
    # No blank line after the last sentence.
    "hi.conll": ["\n\n".join("\n".join(map(" ".join, zip(*row.values()))) for row in LABELLED)],
}
ROWS = {
    # Labelled text.
    "en.jsonl": LABELLED * 4,
    "de.jsonl": LABELLED,
    "few.jsonl": LABELLED[:2],
    "tagged.jsonl": [
        {"tokens": words, "tags": ["DET" if word == "the" else "X" for word in words]}
        for words in (text.split() for text in ENGLISH * 2)
    ],
    "probed.jsonl": [{"text": "the cat", "label": "yes"}, {"text": "no dog", "label": "no"}],
    "texts.jsonl": [
        {"premise": "the cat", "hypothesis": "the cat is open", "label": "yes"},
        {"premise": "the cat", "hypothesis": "no dog", "label": "no"},
    ]
    * 6,
}


@pytest.fixture(scope="module", autouse=True)
def _short_runs(request):
    """Leave out what takes a third of a short run: pictures are written undrawn."""
    if request.path.stem == "test_pictures":
        yield
        return

    def undrawn(grid, path, **options):
        Path(path).write_bytes(b"picture")
        return Path(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_xalign.evaluation.plots.histogram_grid", undrawn)
        yield


def made(main, words, folder):
    text = output_of(main, words)
    return SimpleNamespace(folder=folder, record=read_record(folder), printed=text)


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Encoder and text of `make_files`, and the files of `LINES` and `ROWS`; to be read only."""
    folder = make_files(tmp_path_factory.mktemp("recipes"))
    for name, lines in LINES.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, rows in ROWS.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_XALIGN_CACHE", str(folder / "cache"))
        yield folder


@pytest.fixture(scope="session")
def fao_run(files):
    options = ("--eval_strategy", "steps", "--eval_steps", "1", "--report_to", "none")
    return made(fao.main, command(files, *options, out="fao"), files / "fao")


@pytest.fixture(scope="session")
def mao_run(files):
    options = ("--objective", "infonce", "--report_to", "none")
    return made(mao.main, command(files, *options, out="mao"), files / "mao")


@pytest.fixture(scope="session")
def ppa_run(files):
    """PPA with an evaluation at every step and two frozen probes."""
    options = ("--min_tokens", "1", "--max_tokens", "60", "--queue_size", "16", "--report_to", "none")
    options += ("--eval_strategy", "steps", "--eval_steps", "1")
    options += ("--max_train_pairs", "20")
    slots = (f"{code}={files / name}.jsonl" for code, name in (("en", "en"), ("en", "few"), ("de", "de")))
    options += ("--probe", "slots", *slots, "yes:label", *[f"en={files / 'probed.jsonl'}"] * 2)
    return made(ppa.main, command(files, *options, out="ppa"), files / "ppa")


@pytest.fixture(scope="session")
def mapping_run(files):
    return made(mapping.main, [*on_files(files, "maps"), "--device", "cpu"], files / "maps")
