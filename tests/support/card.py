"""A run's record with constant values, values that try to break out of a card, and a card taken apart."""

from __future__ import annotations

import re

import yaml

from hf_xalign.record import start_record

LANGUAGES = {"peft_type": "XALIGN", "languages": ["bn", "de"], "pivot": "en"}
EVIL = 'x"\n---\n# hacked | <script>alert(1)</script> `a` ``` [l](http://e.vil) {{ 7*7 }} *b* $c$: - no'


def make_record():
    """A record in the layout that `start_record` gives, with what differs between machines put to constants."""
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


def front_matter_and_body(card: str) -> tuple[dict, str]:
    assert card.startswith("---\n")
    front, body = card[4:].split("\n---\n", 1)
    return yaml.safe_load(front), body


def outside_code(body: str) -> str:
    """The body without code blocks and code spans, as CommonMark delimits them."""
    body = re.sub(r"^(`{3,})[a-z]*\n.*?\n\1$", "", body, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", body)
