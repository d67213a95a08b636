"""Records of runs with constant values, hostile values, and parts of a card."""

import re
from typing import Any

import yaml

from hf_xalign.record import start_record
from hf_xalign.trainers import AlignMLMConfig, AlignMLMTrainer, PPAConfig, PPATrainer
from hf_xalign.trainers.continual import ContinualTrainer
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.task_config import TaskConfig

MBERT = "google-bert/bert-base-multilingual-cased"
ON_HUB = {"name": MBERT, "hub_id": MBERT}
XALIGN = {"peft_type": "XALIGN", "languages": None, "pivot": None}
LANGUAGES = {"peft_type": "XALIGN", "languages": ["bn", "de"], "pivot": "en"}
EVIL = 'x"\n---\n# hacked | <script>alert(1)</script> `a` ``` [l](http://e.vil) {{ 7*7 }} *b* $c$: - no'
SETTINGS = {"output_dir": "out", "use_cpu": True}


def make_record() -> dict[str, Any]:
    """Return a record in the layout of `start_record`, with constants for what differs between machines."""
    found = start_record(
        method="fao",
        preset="mao",
        base_model="embedded",
        languages=["de", "bn"],
        seed=42,
        settings={"learning_rate": 5e-5, "freeze_embeddings": True, "layers": [-1]},
        train_data=[
            {"source": "embedded:de", "language": "de", "split": "train", "pairs": 2000, "fingerprint": "0a1b2c"},
            {"source": "embedded:bn", "language": "bn", "split": "train", "pairs": 1998, "fingerprint": "3d4e5f"},
        ],
        eval_data=[{"source": "embedded:de", "language": "de", "split": "test", "pairs": 500}],
        objective="L = mean over links of ||f(i,s) - f(j,t)||^2 + mean over pivot words of ||f - f0||^2",
        paper={
            "title": "Multilingual Alignment",
            "id": "2002.03518",
            "bibtex": "@inproceedings{cao2020,\n  year = {2020}\n}",
        },
        license="mit",
        argv=["recipes/fao.py", "--config", "recipes/configs/fao_embedded.yaml", "--output_dir", "out dir"],
    )
    found["versions"] = {"hf_xalign": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "wandb": None}
    found["git"] = {"commit": "0123abcd" * 5, "dirty": True}
    found["hardware"] = {"cpu": "Some CPU (R)", "cores": 2, "memory_gib": 15.6, "gpus": [], "processes": 1}
    found["times"] = {
        "started": "2026-01-02T03:04:05+00:00",
        "finished": "2026-01-02T03:14:05+00:00",
        "seconds": {"links": 3.2, "train": 201.5},
    }
    found["links"] = {
        "de": {"pairs": 2000, "links": 9876, "links_per_pair": 4.938},
        "bn": {"pairs": 1998, "links": 8000},
    }
    before, after = (
        {"retrieval_mean": score, "retrieval_mean_to_pivot": score, "pool": 3456} for score in (0.781, 0.866)
    )
    found["scores"] = {"before": {"de": before}, "after": {"de": after, "bn": {"retrieval_mean": None}}}
    found["drift"] = {"cosine": 0.98765, "relative_distance": 0.125}
    return found


def paper_of(trainer) -> dict[str, str]:
    return dict(trainer._paper)


def make_mao() -> dict[str, Any]:
    scores = {"before": 0.281, "untrained": 0.114, "after": 0.463}
    scores = {
        when: {"de": {"retrieval_last": value, "retrieval_words": value + 0.01, "pool": 3456}}
        for when, value in scores.items()
    }
    del scores["before"]["de"]["retrieval_words"]
    return make_record() | {
        "method": "mao",
        "preset": "mbert_linear",
        "base_model": dict(ON_HUB),
        "license": None,
        "adapter": dict(XALIGN),
        "command": ["recipes/mao.py", "--config", "recipes/configs/mao_mbert_linear.yaml"],
        "settings": {"preset": "mbert_linear"},
        "objective": "L = mean over links of ||f(i,s) - f(j,t)||^2; f: a linear map over the last subword",
        "scores": scores,
        "trainable": {"parameters": 589_824, "share": 589_824 / 177_853_440},
        "comparison": {"method": "fao", "seconds": 430.2, "own_seconds": 51.6, "same_hardware": False},
    }


def make_languages() -> dict[str, Any]:
    formula = "L = mean over links of ||f(i,s) - f(j,t)||^2; f: a linear map for each language but the pivot"
    return make_record() | {
        "method": "mao",
        "preset": "linear",
        "adapter": dict(LANGUAGES),
        "command": ["recipes/mao.py", "--per_language", "others"],
        "settings": {"per_language": "others"},
        "objective": formula,
        "trainable": {"parameters": 294_912, "share": 294_912 / 117_000_000},
    }


def make_mapping() -> dict[str, Any]:
    found = make_record()
    learnt = {"source": "de=owner/muse", "hub_id": "owner/muse", "language": "de", "entries": 5000}
    found["data"]["dictionary"] = [learnt | {"fingerprint": "6a"}]
    found["data"]["test_dictionary"] = [
        {"source": f"{code}=en-{code}.test.txt", "hub_id": None, "language": code, "entries": 1500}
        for code in ("bn", "de")
    ]
    news = {"source": "de=owner/news", "hub_id": "owner/news", "language": "de", "sentences": 26_000}
    found["data"]["text"] = [news]
    scores = {"retrieval_mean, layer -1": 0.5, "bli_p@1, layer -1": 0.25, "bli_p@1_to_pivot, layer -1": 0.3}
    bounds = {"bli_p@1_to_pivot, layer -1": [0.25, 0.35], "bli_p@5_to_pivot, layer -1": [0.4, 0.6]}
    return found | {
        "method": "mapping",
        "preset": "vecmap",
        "command": ["recipes/mapping.py", "--method", "vecmap"],
        "settings": {"method": "vecmap", "supervision": "dictionary", "layers": [-2, -1]},
        "objective": "W_x, W_z: whiten, rotate, weight, de-whiten",
        "paper": {"title": "A Framework", "id": "10.1609/aaai.v32i1.11992", "bibtex": "@inproceedings{a}"},
        "scores": {"before": {"de": scores}, "after": {"de": scores}},
        "intervals": {"before": {}, "after": {"de": bounds}},
        "maps": {"files": {"de": "maps/de-en.safetensors"}, "dictionary": {}},
        "drift": {},
    }


def make_ppa() -> dict[str, Any]:
    found = make_record()
    found["data"]["eval"].append({**found["data"]["eval"][0], "source": "embedded:bn", "language": "bn", "pairs": 488})
    found["times"]["seconds"] = {"loading and linking": 3.2, "scoring": 21.0, "preparing": 2.1, "training": 201.5}

    def scores(cls, mean):
        both = {"sentence_cls": cls, "sentence_mean": mean}
        ends = {"": 0.0, "_to_pivot": 0.01, "_from_pivot": -0.01}
        named = {f"{name}{end}": value + more for name, value in both.items() for end, more in ends.items()}
        return named | {"pool_sentences": 480}

    return found | {
        "method": "ppa",
        "preset": "ours",
        "command": ["recipes/ppa.py", "--config", "recipes/configs/ppa_embedded.yaml"],
        "settings": {"queue_size": 1000, "freeze_embeddings": True, "dropout": False},
        "objective": PPAConfig(queue_size=1000, **SETTINGS).formula(),
        "paper": paper_of(PPATrainer),
        "links": {},
        "scores": {
            "before": {"de": scores(0.95, 0.97), "bn": scores(0.85, 0.96)},
            "after": {"de": scores(0.96, 0.97), "bn": scores(0.91, 0.965)},
        },
        "trainable": {"parameters": 21_500_000, "share": 21_500_000 / 117_500_000},
    }


def make_align_mlm() -> dict[str, Any]:
    found, derived = make_record(), "en-x-inv-trans"
    found["times"]["seconds"] = {"loading": 26.3, "preparing": 0.3, "scoring": 65.3, "training": 16.6}
    recipe, config = "/home/me/env/lib/hf_xalign/recipes/align_mlm.py", "/home/me/recipes/configs/align_mlm_small.yaml"
    corpus = "en=/home/me/text/brown.jsonl"
    settings = {"corpus": [corpus], "derive": ["inversion", "transliteration"], "vocabulary": "cut"}
    return found | {
        "method": "align_mlm",
        "preset": "ours",
        "license": None,
        "command": [recipe, "--config", config, "--corpus", corpus, "--output_dir=/scratch/me/runs/a b"],
        "settings": settings | {"output_dir": "/scratch/me/runs/a b"},
        "objective": AlignMLMConfig(**SETTINGS).formula(),
        "paper": paper_of(AlignMLMTrainer),
        "languages": {"pivot": "en", "others": [derived]},
        "links": {},
        "drift": {},
        "data": {
            "train": [{"source": "/home/me/text/brown.jsonl", "hub_id": None, "language": "en", "sentences": 4000}],
            "eval": [{"source": "/home/me/text/dev.jsonl", "hub_id": None, "language": "en", "sentences": 500}],
        },
        "scores": {
            "before": {derived: {"embedding_alignment": 0.0}},
            "after": {derived: {"embedding_alignment": 0.25}},
        },
        "losses": {"before": {"en": 7.5, derived: 10.25}, "after": {"en": 7.875, derived: 9.75}},
    }


def make_task(method: str, config: TaskConfig, kind: str, **task) -> dict[str, Any]:
    found = make_record()
    made = {name: found[name] for name in ("method", "preset", "languages", "base_model")}
    found["times"]["seconds"] = {"preparing": 1.5, "training": 60.25, "scoring": 9.0}
    metrics = {"token": ("span_f1", "accuracy"), "sequence": ("accuracy",), "questions": ("qa_f1", "exact_match")}
    shares = (("en", 0.925, 0.91), ("hi", 0.61234, 0.6))
    slots = {"source": "hi=owner/slots:hi", "hub_id": "owner/slots", "language": "hi", "examples": 499}
    about = {"metric": metrics[kind][0], "labels": [], "pair": False, "head": "linear", "frozen": None}
    about |= {"train_languages": ["en"], "zero_shot": ["hi"], "encoder": made, "module": None, "language_rows": None}
    return found | {
        "method": method,
        "preset": config.preset,
        "license": None,
        "adapter": None,
        "base_model": {"name": "/home/me/runs/fao-0", "hub_id": None},
        "languages": {"pivot": "en", "others": ["hi"]},
        "command": [f"/home/me/recipes/{method}.py", "--train_data", "en=/home/me/en.jsonl", "--save_models", "true"],
        "settings": {"adapter": None, "train_data": ["en=/home/me/en.jsonl"], "preset": config.preset},
        "objective": config.formula(),
        "paper": None,
        "links": {},
        "drift": {},
        "data": {
            "train": [{"source": "en=/home/me/en.jsonl", "hub_id": None, "language": "en", "examples": 2000}],
            "eval": [
                {"source": "en=en_test.jsonl", "hub_id": None, "language": "en", "examples": 500},
                slots | {"split": "validation", "revision": "1e5"},
            ],
        },
        "trainable": {"parameters": 21_500_000, "share": 21_500_000 / 117_500_000},
        "scores": {
            "before": {},
            "untrained": {},
            "after": {code: dict.fromkeys(metrics[kind], share) for code, share, _ in shares},
        },
        "intervals": {
            "before": {},
            "after": {code: {name: [low, low + 0.03] for name in metrics[kind]} for code, _, low in shares},
        },
        "task": {**about, "kind": kind, "maps": None, "continual": False, **task},
    }


def make_finetune() -> dict[str, Any]:
    labels = ["O", "B-city", "I-city"]
    return make_task("finetune", TaskConfig(**SETTINGS), "token", labels=labels, frozen="embeddings")


def make_continual() -> dict[str, Any]:
    config = ContinualConfig(alpha=0.02, **SETTINGS)
    named = {name: getattr(config, name) for name in ("alpha", "regularizer_weight", "pairs_per_example")}
    labels = ["contradiction", "entailment", "neutral"]
    found = make_task("continual", config, "sequence", labels=labels, pair=True, continual=named)
    pairs = {"source": "hi=owner/opus:en-hi", "hub_id": "owner/opus", "split": "train", "first": 5000}
    found["data"]["pairs"] = [pairs]
    return found | {"paper": paper_of(ContinualTrainer)}


def make_tagger_record() -> dict[str, Any]:
    record = make_record()
    module = {"name": "/home/me/runs/mao-0", "hub_id": None, "method": "mao", "preset": "linear"}
    module |= {name: record[name] for name in ("languages", "base_model")}
    about = {"labels": ["O", "B-city", "I-city"], "head": "tagger", "frozen": "encoder", "maps": ["en", "hi"]}
    config = TaskConfig(head="tagger", **SETTINGS)
    found = make_task("finetune", config, "token", encoder=None, module=module, **about)
    return found | {"base_model": {"name": "embedded", "hub_id": None}}


def make_questions() -> dict[str, Any]:
    rows = {"en": 0, "hi": 1}
    found = make_task("finetune", TaskConfig(**SETTINGS), "questions", encoder=None, language_rows=rows)
    return found | {"base_model": dict(ON_HUB)}


# By the name of the golden card.
RECORDS = {
    "fao": make_record,
    "mao": make_mao,
    "mao_languages": make_languages,
    "mapping": make_mapping,
    "mapping_adapter": lambda: make_mapping() | {"adapter": dict(LANGUAGES)},
    "ppa": make_ppa,
    "align_mlm": make_align_mlm,
    "finetune": make_finetune,
    "continual": make_continual,
    "tagger": make_tagger_record,
    "questions": make_questions,
}


def front_matter_and_body(card: str) -> tuple[dict, str]:
    assert card.startswith("---\n")
    front, body = card[4:].split("\n---\n", 1)
    return yaml.safe_load(front), body


def python_blocks(card: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)\n```$", card, flags=re.DOTALL | re.MULTILINE)


def execute(card: str) -> dict:
    """Run the Python of a card."""
    found: dict = {}
    for block in python_blocks(card):
        exec(block, found)
    return found


def outside_code(body: str) -> str:
    """Return the body without code blocks and code spans, as CommonMark delimits them."""
    body = re.sub(r"^(`{3,})[a-z]*\n.*?\n\1$", "", body, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", body)
