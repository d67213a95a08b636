"""A run's record of each method, with constant values, and a check of metadata against what the Hub documents."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.card import LANGUAGES, make_record

from hf_xalign.trainers import AlignMLMConfig, AlignMLMTrainer, PPAConfig, PPATrainer
from hf_xalign.trainers.continual import ContinualTrainer
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.task_config import TaskConfig

MBERT = "google-bert/bert-base-multilingual-cased"
XALIGN = {"peft_type": "XALIGN", "languages": None, "pivot": None}
_TYPES = {"array": list, "boolean": bool, "number": (int, float), "object": dict, "string": str}
_KEYWORDS = {
    "additionalProperties", "anyOf", "description", "enum", "items", "minItems", "pattern", "properties", "required",
    "type", "uniqueItems",
}  # fmt: skip


def faults(value: Any, schema: dict[str, Any], where: str = "metadata") -> Iterator[str]:
    """Where `value` is not as `schema` says, by the part of JSON Schema that hub_metadata.schema.json uses."""
    assert schema.keys() <= _KEYWORDS
    if "anyOf" in schema:
        found = [list(faults(value, one, where)) for one in schema["anyOf"]]
        if all(found):
            yield from found[0]
        return
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    # To Python a bool is a number.
    if not any(isinstance(value, _TYPES[one]) and (one != "number" or not isinstance(value, bool)) for one in types):
        yield f"{where}: {value!r} is no {' or '.join(types)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not among {schema['enum']}"
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value, re.ASCII):
        yield f"{where}: {value!r} is not {schema['pattern']}"
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{where}: empty"
        if schema.get("uniqueItems") and any(item in value[:at] for at, item in enumerate(value)):
            yield f"{where}: an item twice"
        for at, item in enumerate(value if "items" in schema else ()):
            yield from faults(item, schema["items"], f"{where}[{at}]")
    if isinstance(value, dict) and "properties" in schema:
        yield from (f"{where}: no {name}" for name in schema.get("required", ()) if name not in value)
        yield from (f"{where}: the Hub has no field {name}" for name in value if name not in schema["properties"])
        for name in value.keys() & schema["properties"].keys():
            yield from faults(value[name], schema["properties"][name], f"{where}.{name}")


@pytest.fixture
def misfits():
    """A function: what of some metadata the Hub does not document."""
    schema = json.loads(Path(__file__).with_name("hub_metadata.schema.json").read_text(encoding="utf-8"))
    return lambda metadata: list(faults(metadata, schema))


@pytest.fixture
def record():
    return make_record()


@pytest.fixture
def mao(record):
    """A published module on a Hub encoder: random start, settings of the paper, timed against FAO."""
    record["command"] = ["recipes/mao.py", "--config", "recipes/configs/mao_mbert_linear.yaml"]
    record["settings"] = {"preset": "mbert_linear"}
    record["objective"] = "L = mean over links of ||f(i,s) - f(j,t)||^2; f: a linear map over the last subword"
    scores = {"before": 0.281, "untrained": 0.114, "after": 0.463}
    record["scores"] = {
        when: {"de": {"retrieval_last": value, "retrieval_words": value + 0.01, "pool": 3456}}
        for when, value in scores.items()
    }
    del record["scores"]["before"]["de"]["retrieval_words"]
    record["trainable"] = {"parameters": 589_824, "share": 589_824 / 177_853_440}
    record["comparison"] = {"method": "fao", "seconds": 430.2, "own_seconds": 51.6, "same_hardware": False}
    base = {"name": MBERT, "hub_id": MBERT}
    about = {"method": "mao", "preset": "mbert_linear", "base_model": base, "license": None}
    return record | about | {"adapter": dict(XALIGN)}


@pytest.fixture
def languages(record):
    """A linear map for each language but the pivot, on the embedded encoder, from the identity."""
    record["command"] = ["recipes/mao.py", "--per_language", "others"]
    record["settings"] = {"per_language": "others"}
    record["objective"] = (
        "L = mean over links of ||f(i,s) - f(j,t)||^2; f: a linear map for each language but the pivot"
    )
    record["trainable"] = {"parameters": 294_912, "share": 294_912 / 117_000_000}
    return record | {"method": "mao", "preset": "linear", "adapter": dict(LANGUAGES)}


@pytest.fixture
def mapping():
    """A map of two layers from a dictionary, without an adapter, scored on another dictionary."""
    record = make_record()
    record["command"] = ["recipes/mapping.py", "--method", "vecmap"]
    record["settings"] = {"method": "vecmap", "supervision": "dictionary", "layers": [-2, -1]}
    record["objective"] = "W_x, W_z: whiten, rotate, weight, de-whiten"
    record["paper"] = {"title": "A Framework", "id": "10.1609/aaai.v32i1.11992", "bibtex": "@inproceedings{a}"}
    record["data"]["dictionary"] = [
        {"source": "de=owner/muse", "hub_id": "owner/muse", "language": "de", "entries": 5000, "fingerprint": "6a"}
    ]
    record["data"]["test_dictionary"] = [
        {"source": f"{code}=en-{code}.test.txt", "hub_id": None, "language": code, "entries": 1500}
        for code in ("bn", "de")
    ]
    record["data"]["text"] = [
        {"source": "de=owner/news", "hub_id": "owner/news", "language": "de", "sentences": 26_000}
    ]
    scores = {"retrieval_mean, layer -1": 0.5, "bli_p@1, layer -1": 0.25, "bli_p@1_to_pivot, layer -1": 0.3}
    record["scores"] = {"before": {"de": scores}, "after": {"de": scores}}
    bounds = {"bli_p@1_to_pivot, layer -1": [0.25, 0.35], "bli_p@5_to_pivot, layer -1": [0.4, 0.6]}
    record["intervals"] = {"before": {}, "after": {"de": bounds}}
    record["maps"] = {"files": {"de": "maps/de-en.safetensors"}, "dictionary": {}}
    record["drift"] = {}
    return record | {"method": "mapping", "preset": "vecmap"}


@pytest.fixture
def map_adapter(mapping):
    """The same map, of the last layer, as an adapter."""
    return mapping | {"adapter": dict(LANGUAGES)}


@pytest.fixture
def ppa(tmp_path):
    """Two languages on the embedded encoder, by the quick settings; no word links."""
    found = make_record()
    paper = PPATrainer._paper
    found["command"] = ["recipes/ppa.py", "--config", "recipes/configs/ppa_embedded.yaml"]
    found["settings"] = {"queue_size": 1000, "freeze_embeddings": True, "dropout": False}
    found["objective"] = PPAConfig(output_dir=str(tmp_path), queue_size=1000, use_cpu=True).formula()
    found["paper"] = {"title": paper["title"], "id": paper["id"], "bibtex": paper["citation"]}
    found["links"] = {}
    found["data"]["eval"].append({**found["data"]["eval"][0], "source": "embedded:bn", "language": "bn", "pairs": 488})
    found["times"]["seconds"] = {"loading and linking": 3.2, "scoring": 21.0, "preparing": 2.1, "training": 201.5}

    def scores(cls, mean):
        both = {"sentence_cls": cls, "sentence_mean": mean}
        ends = {"": 0.0, "_to_pivot": 0.01, "_from_pivot": -0.01}
        return {f"{name}{end}": value + more for name, value in both.items() for end, more in ends.items()} | {
            "pool_sentences": 480
        }

    found["scores"] = {
        "before": {"de": scores(0.95, 0.97), "bn": scores(0.85, 0.96)},
        "after": {"de": scores(0.96, 0.97), "bn": scores(0.91, 0.965)},
    }
    found["trainable"] = {"parameters": 21_500_000, "share": 21_500_000 / 117_500_000}
    return found | {"method": "ppa", "preset": "ours"}


@pytest.fixture
def align_mlm(tmp_path):
    """A language derived of English, on part of the embedded encoder, from files of this machine."""
    found = make_record()
    paper = AlignMLMTrainer._paper
    found["command"] = [
        "/home/me/env/lib/hf_xalign/recipes/align_mlm.py", "--config", "/home/me/recipes/configs/align_mlm_small.yaml",
        "--corpus", "en=/home/me/text/brown.jsonl", "--output_dir=/scratch/me/runs/a b",
    ]  # fmt: skip
    found["settings"] = {
        "corpus": ["en=/home/me/text/brown.jsonl"],
        "derive": ["inversion", "transliteration"],
        "output_dir": "/scratch/me/runs/a b",
        "vocabulary": "cut",
    }
    found["objective"] = AlignMLMConfig(output_dir=str(tmp_path), use_cpu=True).formula()
    found["paper"] = {"title": paper["title"], "id": paper["id"], "bibtex": paper["citation"]}
    found["languages"] = {"pivot": "en", "others": ["en-x-inv-trans"]}
    found["links"] = found["drift"] = {}
    found["data"] = {
        "train": [{"source": "/home/me/text/brown.jsonl", "hub_id": None, "language": "en", "sentences": 4000}],
        "eval": [{"source": "/home/me/text/dev.jsonl", "hub_id": None, "language": "en", "sentences": 500}],
    }
    found["times"]["seconds"] = {"loading": 26.3, "preparing": 0.3, "scoring": 65.3, "training": 16.6}
    found["scores"] = {
        when: {"en-x-inv-trans": {"embedding_alignment": share}} for when, share in (("before", 0.0), ("after", 0.25))
    }
    found["losses"] = {
        "before": {"en": 7.5, "en-x-inv-trans": 10.25},
        "after": {"en": 7.875, "en-x-inv-trans": 9.75},
    }
    return found | {"method": "align_mlm", "preset": "ours", "license": None}


def of_task(found, method, config, **task):
    """A record of a task model on an encoder that FAO aligned; scored in the language of training and another."""
    found = copy.deepcopy(found)
    found["command"] = [
        f"/home/me/recipes/{method}.py",
        "--train_data",
        "en=/home/me/en.jsonl",
        "--save_models",
        "true",
    ]
    found["settings"] = {"adapter": None, "train_data": ["en=/home/me/en.jsonl"], "preset": config.preset}
    found["objective"], found["paper"], found["links"], found["drift"] = config.formula(), None, {}, {}
    made = {name: found[name] for name in ("method", "preset", "languages", "base_model")}
    found["base_model"] = {"name": "/home/me/runs/fao-0", "hub_id": None}
    found["languages"] = {"pivot": "en", "others": ["hi"]}
    found["data"] = {
        "train": [{"source": "en=/home/me/en.jsonl", "hub_id": None, "language": "en", "examples": 2000}],
        "eval": [
            {"source": "en=en_test.jsonl", "hub_id": None, "language": "en", "examples": 500},
            {
                "source": "hi=owner/slots:hi", "hub_id": "owner/slots", "language": "hi", "examples": 499,
                "split": "validation", "revision": "1e5",
            },
        ],
    }  # fmt: skip
    found["times"]["seconds"] = {"preparing": 1.5, "training": 60.25, "scoring": 9.0}
    found["trainable"] = {"parameters": 21_500_000, "share": 21_500_000 / 117_500_000}
    metrics = {"token": ("span_f1", "accuracy"), "sequence": ("accuracy",), "questions": ("qa_f1", "exact_match")}
    names = metrics[task["kind"]]
    found["scores"] = {
        "before": {},
        "untrained": {},
        "after": {language: dict.fromkeys(names, share) for language, share in (("en", 0.925), ("hi", 0.61234))},
    }
    shares = {"en": 0.91, "hi": 0.6}
    bounds = {language: {name: [share, share + 0.03] for name in names} for language, share in shares.items()}
    found["intervals"] = {"before": {}, "after": bounds}
    found["task"] = {
        "metric": names[0], "labels": [], "pair": False, "head": "linear", "frozen": None, "train_languages": ["en"],
        "zero_shot": ["hi"], "encoder": made, "module": None, "language_rows": None, "maps": None, "continual": False,
        **task,
    }  # fmt: skip
    return found | {"method": method, "preset": config.preset, "license": None, "adapter": None}


@pytest.fixture
def finetune(record, tmp_path):
    """Slots, word embeddings frozen."""
    config = TaskConfig(output_dir=str(tmp_path), use_cpu=True)
    return of_task(record, "finetune", config, kind="token", labels=["O", "B-city", "I-city"], frozen="embeddings")


@pytest.fixture
def continual(record, tmp_path):
    """Inference, with sentence pairs; both from the Hub."""
    config = ContinualConfig(output_dir=str(tmp_path), use_cpu=True, alpha=0.02)
    named = {name: getattr(config, name) for name in ("alpha", "regularizer_weight", "pairs_per_example")}
    labels = ["contradiction", "entailment", "neutral"]
    found = of_task(record, "continual", config, kind="sequence", labels=labels, pair=True, continual=named)
    pairs = {"source": "hi=owner/opus:en-hi", "hub_id": "owner/opus", "split": "train", "first": 5000}
    found["data"]["pairs"] = [pairs]
    paper = ContinualTrainer._paper
    found["paper"] = {"title": paper["title"], "id": paper["id"], "bibtex": paper["citation"]}
    return found


@pytest.fixture
def tagger(record, tmp_path):
    """A tagger on the untouched embedded encoder, with a module that has a map for each language."""
    config = TaskConfig(output_dir=str(tmp_path), use_cpu=True, head="tagger")
    module = {"name": "/home/me/runs/mao-0", "hub_id": None, "method": "mao", "preset": "linear"}
    module |= {name: record[name] for name in ("languages", "base_model")}
    about = {"kind": "token", "labels": ["O", "B-city", "I-city"], "head": "tagger", "frozen": "encoder"}
    found = of_task(record, "finetune", config, **about, encoder=None, module=module, maps=["en", "hi"])
    return found | {"base_model": {"name": "embedded", "hub_id": None}}


@pytest.fixture
def questions(record, tmp_path):
    """Answers by an encoder with language embeddings, from the Hub."""
    config = TaskConfig(output_dir=str(tmp_path), use_cpu=True)
    found = of_task(record, "finetune", config, kind="questions", encoder=None, language_rows={"en": 0, "hi": 1})
    return found | {"base_model": {"name": MBERT, "hub_id": MBERT}}
