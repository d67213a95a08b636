"""The ground that commands of the docs run on: tiny models and text at their names, and options that shorten."""

import gzip
import importlib.resources
import json
import re
import shlex
from pathlib import Path

import datasets
import gradio
from datasets import ClassLabel, Dataset, Features, List, Value

import hf_xalign.cli.main
from hf_xalign.data import builtin as encoder
from hf_xalign.data import load
from support.families import save_base
from support.labelled import squad, squad_rows
from support.tiny import SENTENCES, make_tokenizer

ROOT = Path(__file__).resolve().parents[2]

BUILTIN = ROOT / "hf_xalign/data/chromium_ui"

ENTRIES = ["the\tdie", "cat\tkatze", "dog\thund", "house\thaus", "open\toffen", "file\tdatei", "no\tkein"]

# Options that make a command small; they come last, so they win.
CPU = ("--use_cpu", "true", "--bf16", "false", "--disable_tqdm", "true", "--report_to", "none", "--max_steps", "1")
WORDS = (*CPU, "--per_device_train_batch_size", "4", "--max_train_pairs", "16")
TASK = (*CPU, "--per_device_train_batch_size", "2", "--seeds", "0", "1")
RANDOM = ("--model_name_or_path", "new", "--layers", "1", "--hidden_size", "16", "--attention_heads", "2")
RANDOM += ("--vocabulary", "train")
SMALL = {
    "fao": WORDS,
    "mao": WORDS,
    "ppa": (*WORDS, "--queue_size", "16", "--model_name_or_path", "google-bert/bert-base-multilingual-cased"),
    "finetune": TASK,
    "continual": TASK,
    "mapping": ("--device", "cpu", "--max_train_pairs", "16", "--max_words", "20"),
    "align_mlm": (*CPU, *RANDOM, "--vocab_size", "80", "--block_size", "32", "--per_device_train_batch_size", "4"),
    "demo": WORDS,
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
        letters = {97 + k: 0x7CA + k for k in range(26)} if language == "nqo" else {}  # another script
        pairs = [f"{text.translate(letters)}\t{english}" for text, english, _ in SENTENCES * 3]
        write(path, [f"{language}\ten", *pairs])


def make_models(folder):
    shape = {"num_hidden_layers": 4, "hidden_size": 24, "num_attention_heads": 12, "max_position_embeddings": 520}
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 512
    for name, family in {
        "google-bert/bert-base-multilingual-cased": "bert",
        "google-bert/bert-base-multilingual-uncased": "bert",
        "google-bert/bert-base-cased": "bert",
        "google/electra-base-generator": "electra",
        "dbmdz/electra-base-german-europeana-cased-discriminator": "electra",
        "distilbert/distilbert-base-cased": "distilbert",
        "distilbert/distilbert-base-german-cased": "distilbert",
        "dbmdz/bert-base-german-cased": "bert",
        "sagorsarker/bangla-bert-base": "bert",
        "data/extended_mbert_hi": "bert",
        "distilbert/distilbert-base-multilingual-cased": "distilbert",
        "FacebookAI/xlm-roberta-base": "xlm-roberta",
        "ai4bharat/indic-bert": "albert",
    }.items():
        save_base(family, folder / name, **shape | ({"num_hidden_layers": 12} if family == "xlm-roberta" else {}))
        tokenizer.save_pretrained(folder / name)


def make_text(folder):
    """Sentence pairs, text in one language, and dictionaries."""
    data = folder / "data"
    for language in ("de", "bn", "hi", "ru", "fr", "es", "bg", "ar", "zh"):
        write_pairs(data / f"{language}-en.tsv.gz", language)
        write_pairs(data / f"{language}-en.test.tsv", language)
    for language in ("hi", "ru", "es", "vi"):
        write_pairs(data / f"WikiMatrix.en-{language}.250k.tmx.gz", language)
    sides = [[text for text, _, _ in SENTENCES * 3], [english for _, english, _ in SENTENCES * 3]]
    for name, language in (("europarl", "de"), ("opensubtitles", "hi")):
        write(data / f"{name}.{language}", sides[0])
        write(data / f"{name}.en", sides[1])
    for name, lines in (("wiki.en", sides[1]), ("text.en", sides[1]), ("wiki.de", sides[0])):
        write(data / f"{name}.txt", lines)
    for name in ("en-de", "en-de.0-5000", "en-de.5000-6500"):
        write(data / f"{name}.txt", ENTRIES)


def make_tasks(folder):
    words = [["the", "cat", "sees", "the", "dog", "."], ["open", "the", "file", "."]]
    tags, upos = ["O", "B-PER", "O", "O", "B-LOC", "O"], ["DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT"]
    trees = ["\n".join(f"{k}\t{word}\t_\t{upos[k - 1]}\t_\t_\t{min(k - 1, 3)}\t{'root' if k == 1 else 'dep'}\t_\t_"
                       for k, word in enumerate(sentence, 1)) + "\n" for sentence in words * 6]  # fmt: skip
    for name in ("wikitext-103", "en_ewt", "en_pud", "fr_pud", "en_ewt.train", "en_ewt.test", "fr_gsd"):
        write(folder / f"data/{name}.conllu", trees)
    columns = [
        "\n".join(f"{word} {tag}" for word, tag in zip(sentence, tags, strict=False)) + "\n" for sentence in words
    ]
    for name in ("en.train", "en.testa", "de.testa", "en.testb", "de.testb"):
        write(folder / f"data/conll2003/{name}.conll", columns * 4)
    slots = [f"{k}\t{' '.join(words[k % 2])}\t{' '.join(tags[: len(words[k % 2])])}\tatis_flight" for k in range(8)]
    for name in ("en.train", "en.dev", "hi.dev", "en.test", "hi.test"):
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


# Runs that commands read, and what those commands write themselves.
RUN = re.compile(r"runs/[\w/-]+|owner/name|me/aligned")
WRITTEN = re.compile(r"(?:--output(?:_dir)? |push \S+ |output_dir=\")([\w/-]+)")
FILE = re.compile(r"(?:(\w{2,3})(?:\+\w\w)?=|,|\s)([\w./*-]+?\.(?:jsonl|tsv|txt|conllu|bn|en)(?:\.gz)?)(?=[\s,]|$)")


def make_files(folder, commands):
    """Write each data file that the commands of a page name. Rows of JSON Lines suit every method."""
    for language, name in FILE.findall(commands):
        path = folder / name.replace("*", "part")
        kind, side = path.name.removesuffix(".gz").rpartition(".")[2], 1 if "en" in (language, path.suffix[1:]) else 0
        pairs = SENTENCES[:3] * 5 if "test" in name else SENTENCES * 3  # `prepare` drops what a test has
        texts = [pair[side] for pair in pairs]
        if path.exists():
            continue
        if language == "bn":  # `prepare` looks at the script
            rows = (BUILTIN / "bn.test.jsonl").read_text("utf-8").splitlines()
            texts = [json.loads(row)["source"] for row in rows[: len(texts)]]
        if kind == "tsv":
            write_pairs(path, language)
        elif kind == "jsonl":
            tokens = [text.split() for text in texts]
            labels = [["B-A" if word in ("cat", "katze") else "O" for word in words] for words in tokens]
            own = {"source": [pair[0] for pair in pairs], "target": [pair[1] for pair in pairs]}
            own |= {"tokens": tokens, "labels": labels, "premise": texts, "hypothesis": texts}
            own["label"] = ["entailment", "neutral", "contradiction"] * (len(texts) // 3)
            write(path, [json.dumps(dict(zip(own, row, strict=True))) for row in zip(*own.values(), strict=True)])
        elif re.match(r"en-\w\w\.", path.name):
            write(path, ["cat\thund", "dog\thaus"] if "test" in name else ENTRIES)
        elif kind == "conllu":
            write(path, [""])
        else:
            write(path, texts)


# Files that others are copies of, by what is in a name.
TEMPLATES = {
    "MLQA_V1": "MLQA_V1/test/test-context-hi-question-hi.json",
    "squad.translate": "data/squad.translate.train.en-hi.json",
    "xnli.": "data/xnli.test.jsonl",
    "wikiann.": "data/wikiann.test.jsonl",
    ".conllu": "data/en_ewt.test.conllu",
    ".conll": "data/conll2003/en.train.conll",
    "snips.": "data/snips.jsonl",
    ".tsv": "data/atis.en.train.tsv",
}


def stand_tables(commands):
    write(Path("data/snips.jsonl"), [json.dumps({"tokens": ["the", "cat"], "labels": ["O", "B-LOC"]})] * 6)
    for command in commands:
        option, pairs = "", not {"finetune", "continual"} & set(command.words)
        for word in command.words:
            option = word if word.startswith("--") else option
            language, _, names = word.rpartition("=")
            for path in map(Path, names.split(",")):
                if not word.startswith(("--", "runs/")) and path.suffix and "/" in names and not path.exists():
                    make_file(path, language, option, pairs)


def make_file(path, language, option, pairs):
    """Write the file that an option of a command names; `pairs` if its text is sentence pairs."""
    if option == "--pairs" or (pairs and option in ("--train_data", "--eval_data")):
        write_pairs(path, language)
    elif "dictionary" in option:
        write(path, ENTRIES)
    elif option == "--text":
        write(path, [sentence[language == "en"] for sentence in SENTENCES * 3])
    elif template := next((file for part, file in TEMPLATES.items() if part in str(path)), None):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = Path(template).read_text("utf-8")
        # SNIPS' files end in .json, and hold one array.
        path.write_text(
            f"[{','.join(text.splitlines())}]" if path.suffix == ".json" and "snips" in str(path) else text
        )


def make_runs(step, written):
    """Make a run of FAO at each name of a run in `step`, a command or Python, unless `written` or a folder."""
    own = set(WRITTEN.findall(step))
    packaged = [ROOT / "recipes" / "configs" / f"{name}.yaml" for name in re.findall(r"--config (\w+)", step)]
    configs = [path.read_text("utf-8") for path in packaged if path.exists()]
    read = [name for text in configs for name in re.findall(r"^model_name_or_path: (runs/.+)", text, re.MULTILINE)]
    for name in [*RUN.findall(step), *read]:
        if not Path(name).exists() and not any(name.startswith(one) for one in own | written):
            run(["hf-xalign", "train", "fao", "--config", "fao_builtin", "--output_dir", name])
    written |= set() if "--dry_run" in step else own


def stand(folder, monkeypatch):
    """Make `folder` the working folder, with models and text at their names; the built-in encoder is a tiny one."""
    for room in ("recipes", "benchmarks"):
        (folder / room).symlink_to(ROOT / room)
    make_models(folder)
    make_text(folder)
    write(folder / "gold.wa", ["1 1 1 S", "2 1 1 S", "3 1 1 P"])
    for german in BUILTIN.glob("de.*.jsonl"):
        lines = german.read_text("utf-8").splitlines()[:40]
        for language in ("de", "bn"):  # the tiny tokenizer knows no Bengali letter
            name = german.name.replace("de", language)
            write(folder / "text/chromium_ui" / name, [line.replace('"de"', f'"{language}"') for line in lines])
    for english in BUILTIN.glob("en.*.pos.jsonl"):
        write(folder / "text/chromium_ui" / english.name, english.read_text("utf-8").splitlines()[:40])
    places, hub = importlib.resources.files, make_tasks(folder)
    own = {"hf_xalign.data": folder / "text"}
    monkeypatch.setattr(importlib.resources, "files", lambda package: own.get(package) or places(package))
    monkeypatch.setattr(encoder, "builtin_encoder", lambda builtin=None: folder / "FacebookAI/xlm-roberta-base")
    # The text is German, under the names of all languages.
    monkeypatch.setattr(load, "faults_of_pairs", lambda pairs: ())
    monkeypatch.setattr(gradio.Blocks, "block_thread", lambda page: page.close())
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda name, *_, **__: Builder(hub[name]))
    monkeypatch.chdir(folder)


def run(words):
    method = words[1 + (words[1] == "train")]
    if "--source_vectors" not in words:
        words = [*words, *SMALL.get(method, ()), *["--seeds", "0", "1"] * ("train" in words and "--seeds" in words)]
    try:
        assert hf_xalign.cli.main.main(words[1:]) == 0
    except BaseException as error:
        raise AssertionError(shlex.join(words)) from error
