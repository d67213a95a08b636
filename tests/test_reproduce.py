"""Every command of docs/reproduce.md, run unchanged on tiny models and text that stand at the page's paths and ids."""

import gzip
import importlib
import json
import re
import shlex
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import datasets
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from support.families import save_base
from support.labelled import squad, squad_rows
from support.tiny import SENTENCES, make_tokenizer

import hf_xalign.cli.main

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/reproduce.md").read_text("utf-8")
PAPERS = dict(re.findall(r"^## ([\w-]+) \(.+?\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL))
COMMAND = re.compile(r"`(?:(?:accelerate launch|python) (recipes|benchmarks)/(\w+)\.py|hf-xalign) ([^`]+)`")

# Options that make a command small; they come last, so they win.
CPU = ("--use_cpu", "true", "--bf16", "false", "--disable_tqdm", "true", "--report_to", "none", "--max_steps", "1")
WORDS = (*CPU, "--per_device_train_batch_size", "4", "--max_train_pairs", "16")
TASK = (*CPU, "--per_device_train_batch_size", "2", "--seeds", "0", "1")
RANDOM = (
    "--model_name_or_path",
    "new",
    "--layers",
    "1",
    "--hidden_size",
    "16",
    "--attention_heads",
    "2",
    "--vocabulary",
    "train",
)
SMALL = {
    "fao": WORDS,
    "mao": WORDS,
    "ppa": (*WORDS, "--queue_size", "16", "--model_name_or_path", "google-bert/bert-base-multilingual-cased"),
    "finetune": TASK,
    "continual": TASK,
    "mapping": ("--device", "cpu", "--max_train_pairs", "16", "--max_words", "20"),
    "align_mlm": (*CPU, *RANDOM, "--vocab_size", "80", "--block_size", "32", "--per_device_train_batch_size", "4"),
    "align_mlm_grid": ("--dry_run", "true"),  # tests/recipes/test_align_mlm_recipe.py trains a whole one
    "mapping_table": ("--languages", "de", "--encoders", "raw", "--max_train_pairs", "16", "--max_words", "20"),
}


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def write_pairs(path, language):
    if ".tmx" in path.name:
        units = [f'<tu><tuv xml:lang="en"><seg>{english}</seg></tuv>' for _, english, _ in SENTENCES]
        texts = [f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv></tu>' for text, _, _ in SENTENCES]
        body = [one + other for one, other in zip(units, texts, strict=True)] * 3
        write(path, ['<?xml version="1.0"?><tmx version="1.4"><header/><body>', *body, "</body></tmx>"])
    else:
        write(path, [f"{language}\ten", *(f"{text}\t{english}" for text, english, _ in SENTENCES * 3)])


def make_models(folder):
    shape = {"num_hidden_layers": 4, "hidden_size": 24, "num_attention_heads": 12, "max_position_embeddings": 520}
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 512
    for name, family in {
        "google-bert/bert-base-multilingual-cased": "bert",
        "google-bert/bert-base-cased": "bert",
        "dbmdz/bert-base-german-cased": "bert",
        "data/extended_mbert_hi": "bert",
        "distilbert/distilbert-base-multilingual-cased": "distilbert",
        "FacebookAI/xlm-roberta-base": "xlm-roberta",
        "ai4bharat/indic-bert": "albert",
    }.items():
        save_base(family, folder / name, **shape)
        tokenizer.save_pretrained(folder / name)


def make_text(folder):
    """Sentence pairs, text in one language, dictionaries, and a folder for the benchmark."""
    data = folder / "data"
    for language in ("de", "bn", "hi", "ru", "fr", "es", "bg", "ar", "zh"):
        write_pairs(data / f"{language}-en.tsv.gz", language)
        write_pairs(data / f"{language}-en.test.tsv", language)
    for language in ("hi", "ru", "es", "vi"):
        write_pairs(data / f"WikiMatrix.en-{language}.tmx.gz", language)
    sides = [[text for text, _, _ in SENTENCES * 3], [english for _, english, _ in SENTENCES * 3]]
    for name, language in (("europarl", "de"), ("opensubtitles", "hi")):
        write(data / f"{name}.{language}", sides[0])
        write(data / f"{name}.en", sides[1])
    for name in ("data/wiki.en.txt", "data/text.en.txt", "DATA/text/en.news.txt.gz"):
        write(folder / name, sides[1])
    for name in ("data/wiki.de.txt", "DATA/text/de.news.txt.gz"):
        write(folder / name, sides[0])
    entries = ["the\tdie", "cat\tkatze", "dog\thund", "house\thaus", "open\toffen", "file\tdatei", "no\tkein"]
    for name in (
        "data/en-de",
        "data/en-de.0-5000",
        "data/en-de.5000-6500",
        "DATA/dict/en-de.train",
        "DATA/dict/en-de.test",
    ):
        write(folder / f"{name}.txt", entries)
    rows = [json.dumps({"source": text, "target": english}) for text, english, _ in SENTENCES * 3]
    for part in ("train", "test"):
        write(folder / f"DATA/bitext/de.{part}.jsonl", rows)


def make_tasks(folder):
    """Labelled words, pairs of texts and questions, in the published layouts; returns those on the Hub."""
    words = [["the", "cat", "sees", "the", "dog", "."], ["open", "the", "file", "."]]
    tags, upos = ["O", "B-PER", "O", "O", "B-LOC", "O"], ["DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT"]
    trees = ["\n".join(f"{k}\t{word}\t_\t{upos[k - 1]}\t_\t_\t{min(k - 1, 3)}\t{'root' if k == 1 else 'dep'}\t_\t_"
                       for k, word in enumerate(sentence, 1)) + "\n" for sentence in words * 6]  # fmt: skip
    for name in ("wikitext-103", "en_ewt.train", "en_ewt.test", "fr_gsd"):
        write(folder / f"data/{name}.conllu", trees)
    columns = [
        "\n".join(f"{word} {tag}" for word, tag in zip(sentence, tags, strict=False)) + "\n" for sentence in words
    ]
    for name in ("en.train", "en.testb", "de.testb"):
        write(folder / f"data/conll2003/{name}.conll", columns * 4)
    slots = [f"{k}\t{' '.join(words[k % 2])}\t{' '.join(tags[: len(words[k % 2])])}\tatis_flight" for k in range(8)]
    for name in ("en.train", "en.test", "hi.test"):
        write(folder / f"data/atis.{name}.tsv", ["id\tutterance\tslot_labels\tintent", *slots])
    tree = {"upos": upos, "heads": [0, 1, 2, 3, 3, 3], "deprels": ["root", *["dep"] * 5]}
    sides = {f"{side}_{name}": values for side in ("text_a", "text_b") for name, values in tree.items()}
    text = " ".join(words[0])
    names = ["entailment", "neutral", "contradiction"]
    nli = [{"premise": text, "hypothesis": text, "label": names[k % 3]} for k in range(6)]
    for part in ("train", "test"):
        write(folder / f"data/xnli.{part}.jsonl", [json.dumps(row | sides) for row in nli])
        write(folder / f"data/wikiann.{part}.jsonl", [json.dumps({"tokens": words[0], "ner_tags": tags, **tree})] * 6)
    languages = ("en", "es", "de", "ar", "hi", "vi", "zh")
    for context, question in [(one, one) for one in languages] + [("en", "hi"), ("hi", "en")]:
        name = f"MLQA_V1/test/test-context-{context}-question-{question}.json"
        write(folder / name, [json.dumps(squad())])
    for language in ("de", "hi"):
        write(folder / f"data/squad.translate.train.en-{language}.json", [json.dumps(squad())])
    tydi = json.dumps(squad()).replace('"id": "', '"id": "russian-')
    write(folder / "data/tydiqa-goldp-v1.1-dev.json", [tydi])
    nli_columns = {"premise": Value("string"), "hypothesis": Value("string"), "label": ClassLabel(names=names)}
    ner_labels = List(ClassLabel(names=["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
    ner_columns = {"tokens": List(Value("string")), "ner_tags": ner_labels}
    ner = [{"tokens": words[0], "ner_tags": tags}] * 6
    questions = Dataset.from_list(squad_rows(squad()))
    return {
        "facebook/xnli": Dataset.from_list(nli, features=Features(nli_columns)),
        "unimelb-nlp/wikiann": Dataset.from_list(ner, features=Features(ner_columns)),
        "rajpurkar/squad": questions,
        "google/xquad": questions,
        "Salesforce/wikitext": Dataset.from_dict({"text": [english for _, english, _ in SENTENCES * 3]}),
    }


class Builder:
    """What `datasets.load_dataset_builder` returns, for a dataset in memory."""

    hash = "0" * 40

    def __init__(self, rows):
        self.rows = rows

    def download_and_prepare(self):
        pass

    def as_dataset(self, split):
        return self.rows


def output_dir(method, words):
    """Output folder of a command: its option, or the name of its configuration."""
    given = dict(pairwise(words))
    return given.get("--output_dir") or f"runs/{Path(given['--config']).stem}"


def test_no_two_commands_of_the_page_write_into_one_folder():
    folders = Counter(
        output_dir(method, words)
        for room, method, options in COMMAND.findall(PAGE)
        if room == "recipes" and method not in ("compare", "align_mlm_grid") and "--dry_run" not in options
        for words in [shlex.split(options)]
    )
    assert [folder for folder, count in folders.items() if count > 1] == []


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_every_command_runs_to_its_end(paper, tmp_path, monkeypatch):
    for room in ("recipes", "benchmarks"):
        (tmp_path / room).symlink_to(ROOT / room)
    make_models(tmp_path)
    make_text(tmp_path)
    hub = make_tasks(tmp_path)
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda name, *_, **__: Builder(hub[name]))
    monkeypatch.chdir(tmp_path)
    commands = COMMAND.findall(PAPERS[paper])
    assert commands
    # What stands above the table is about its runs.
    for room, method, options in sorted(commands, key=lambda command: command[0] == ""):
        words = [*shlex.split(options), *SMALL.get(method, ())]
        try:
            if not room:
                hf_xalign.cli.main.main(words)
            elif room == "benchmarks":
                monkeypatch.syspath_prepend(ROOT / "benchmarks")
                script = importlib.import_module(method)
                monkeypatch.setattr(script, "train_encoder", lambda *_: "google-bert/bert-base-multilingual-cased")
                monkeypatch.delitem(script.METHODS, "VecMap")  # its whitening needs more words than the tiny text has
                monkeypatch.setattr(sys, "argv", [method, *words])
                script.main()
            else:
                importlib.import_module(f"hf_xalign.recipes.{method}").main(words)
        except BaseException as error:
            raise AssertionError(f"{method}.py {shlex.join(words)}") from error
