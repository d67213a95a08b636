"""Scores as values, and their names in `results.json`, logs and tables. A new kind of score is a row of `KINDS`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import NamedTuple


class Kind(NamedTuple):
    """Title of what is scored, the `evaluate` module that computes it, and what follows `pool_` for its candidates."""

    title: str
    module: str = ""
    pool: str = ""


KINDS = {
    "retrieval": Kind("word retrieval", "word_retrieval"),
    "sentence": Kind("sentence retrieval", "sentence_retrieval", "sentences"),
    "bli": Kind("bilingual lexicon induction", "bilingual_lexicon_induction", "bli"),
    "embedding": Kind("alignment of word embeddings", "embedding_alignment"),
    "probe": Kind("frozen probes", "f1"),  # of the Hub: macro F1 of all labels but O
    "pool": Kind(""),
}
# Scores with another name than their module.
_MODULES = {"accuracy": "classification_accuracy", "exact_match": "qa_f1", "probe_pos": "classification_accuracy"}
_NAME = re.compile(
    r"(?P<task>[^_,]+)(?:_(?P<pooling>(?!(?:to|from)_pivot(?:,|$)).+?))?(?:_(?P<direction>to|from)_pivot)?"
    r"(?:, (?P<protocol>(?!layer ).+?))?(?:, layer (?P<layer>-?\d+))?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Score:
    """Score of one language.

    Attributes:
        task: a kind of `KINDS`, where `pool` is a number of candidates; or the first word of a task's metric.
        pooling: pooling of the vectors, and the variant: `mean`, `last_types`; `p@1` of lexicon
            induction; the name of a probe.
        direction: `to` or `from` the pivot, or empty for the mean of both.
        protocol: evaluation protocol, empty for ours.
        layer: number of the layer, None if only one was scored.
        language: language code.
        value: the score, None if it is missing.

    Example:
        >>> Score("retrieval", "mean", direction="to", protocol="mao", layer=8).name
        'retrieval_mean_to_pivot, mao, layer 8'
        >>> Score.read("bli_p@1_to_pivot", language="de", value=0.5)
        Score(task='bli', pooling='p@1', direction='to', protocol='', layer=None, language='de', value=0.5)
    """

    task: str
    pooling: str = ""
    direction: str = ""
    protocol: str = ""
    layer: int | None = None
    language: str = ""
    value: float | None = None

    @classmethod
    def read(cls, name: str, language: str = "", value: float | None = None) -> Score:
        """Make a score from its name."""
        if (match := _NAME.fullmatch(name)) is None:
            return cls(name, language=language, value=value)
        task, pooling, direction, protocol, layer = match.groups("")
        return cls(task, pooling, direction, protocol, int(layer) if layer else None, language, value)

    @property
    def measure(self) -> str:
        """Name without direction, protocol and layer."""
        return f"{self.task}_{self.pooling}" if self.pooling else self.task

    @property
    def name(self) -> str:
        """Name in records, logs and tables."""
        direction = f"_{self.direction}_pivot" if self.direction else ""
        protocol = f", {self.protocol}" if self.protocol else ""
        layer = "" if self.layer is None else f", layer {self.layer}"
        return f"{self.measure}{direction}{protocol}{layer}"

    @property
    def title(self) -> str:
        """Name of the kind, or of the score if `KINDS` lacks it; empty for a count."""
        return KINDS[self.task].title if self.task in KINDS else self.measure.replace("_", " ")

    @property
    def module(self) -> str:
        """Id of the `evaluate` module that computes it."""
        return _MODULES.get(self.measure) or KINDS.get(self.task, Kind("")).module or self.measure

    @property
    def is_count(self) -> bool:
        """True for a number of candidates, False for a share."""
        return self.task == "pool"

    @property
    def folder(self) -> str:
        """Name of the folder of its example scores, such as `retrieval_last-mao`."""
        return self.name.replace(", ", "-")

    def directions(self) -> tuple[Score, Score, Score]:
        """Return the mean of both directions, to the pivot, and from it."""
        return replace(self, direction=""), replace(self, direction="to"), replace(self, direction="from")

    def pool(self) -> Score:
        """Return the number of its candidates."""
        return replace(self, task="pool", pooling=KINDS[self.task].pool, direction="", value=None)


def module_names() -> list[str]:
    """Return the names of the `evaluate` modules that ship with the package."""
    folders = files("hf_xalign.metrics").iterdir()
    return sorted(entry.name for entry in folders if entry.joinpath(f"{entry.name}.py").is_file())
