"""Frozen probes of a run or of a model: labelled text to train on, and text in other languages to test on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.load import Entry
from hf_xalign.data.sources import BUILTIN
from hf_xalign.errors import InputError
from hf_xalign.evaluation.probes import probe_encoder
from hf_xalign.evaluation.scores import Examples, Scores
from hf_xalign.score import Score
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.tasks import examples as texts
from hf_xalign.tasks.results import save_examples, write_examples

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Probe:
    """Text that a linear classifier learns from, and text by language that it is tested on."""

    name: str
    train: texts.Examples
    tests: dict[str, texts.Examples]

    @property
    def metric(self) -> str:
        """Accuracy, or where words have the label O, the mean F1 of the other labels."""
        return "macro_f1" if "O" in self.train.label_names else "accuracy"

    def examples(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, **options: Any
    ) -> dict[str, ExampleScores]:
        """Probe an encoder, and return each language's example scores; `options` are those of [`probe_encoder`]."""
        rows = {language: part.rows for language, part in self.tests.items()}
        desc = f"Probing {self.name}"
        scores = probe_encoder(model, tokenizer, (self.train.language, self.train.rows), rows, desc=desc, **options)
        return {language: metrics[self.metric] for language, metrics in scores.items()}

    def scores(self, examples: Mapping[str, ExampleScores]) -> Scores:
        """Return the totals of [`examples`], as a record has them."""
        name = Score("probe", self.name).name
        return {language: {name: found.score()} for language, found in examples.items()}

    def entry(self, text: texts.Examples) -> Entry:
        """Return the record's entry of a text to learn from or to test on."""
        about: Entry = {"language": text.language, "examples": len(text), "fingerprint": text.fingerprint}
        return {"source": text.name, "hub_id": None, **about, "probe": self.name}


# Stage of a run, a probe, and its example scores by language.
Probed = tuple[str, Probe, Mapping[str, ExampleScores]]


def keep_examples(
    folder: Path, seed: int, examples: Mapping[str, Examples], probed: Iterable[Probed], text: Iterable[Entry]
) -> None:
    """Write example scores of retrieval on a text, by stage, and of probes to `NAME/STAGE/seed-<number>`."""
    inputs = fingerprints("eval", text)
    for stage, stage_examples in examples.items():
        save_examples(stage_examples, folder, f"{stage}/seed-{seed}", inputs=inputs)
    for stage, probe, probe_examples in probed:
        header = {"task": f"probe {probe.name}", "metric": probe.metric, "train_language": probe.train.language}
        write_examples(folder / probe.name / stage / f"seed-{seed}", probe_examples, **header)


def fingerprints(kind: str, entries: Iterable[Mapping[str, Any]]) -> dict[str, object]:
    """Return the inputs of a `scores.json` for a kind of text, of which [`compare`] tells other text."""
    return {f"{kind} {entry['source']}": entry.get("fingerprint") for entry in entries}


def probe_entries(probes: Sequence[Probe]) -> dict[str, list[Entry]]:
    """Return the record's entries of the probes' text, by kind; none without probes."""
    entries: dict[str, list[Entry]] = {}
    for probe in probes:
        entries.setdefault("probe_train", []).append(probe.entry(probe.train))
        entries.setdefault("probe_test", []).extend(map(probe.entry, probe.tests.values()))
    return entries


def read_probes(items: Sequence[str], max_examples: int | None = None) -> list[Probe]:
    """Read probes: a name, the source to train on (its split train), those to test on (test), then the next name.

    Args:
        items: such as `pos:tags en=train.jsonl en=test.jsonl de=test.jsonl`, where `name:column` names the labels'
            column, or `pos builtin:en builtin:en builtin:de`.
        max_examples: largest number of examples of a test.
    """
    groups: list[list[str]] = []
    for item in items:
        if not groups or not ("=" in item or item.startswith(BUILTIN)):
            groups.append([])
        groups[-1].append(item)
    probes = [_read_probe(group[0], group[1:], max_examples) for group in groups]
    names = [probe.name for probe in probes]
    if len(set(names)) < len(names):
        raise InputError(f"probe: two are called {', '.join(names)}; give each its own name")
    return probes


def _read_probe(label: str, files: Sequence[str], max_examples: int | None) -> Probe:
    name, _, column = label.partition(":")
    if not name.isidentifier() or len(files) < 2:
        raise InputError(f"probe {' '.join([label, *files])}: give a name, a file to train on, and files to test on")

    def read(source: str, split: str, most: int | None = None) -> texts.Examples:
        kind = texts.find_kind(source, split)
        return texts.read_examples(source, kind, label_column=column or None, split=split, max_examples=most)

    tests = texts.by_language(read(source, "test", max_examples) for source in files[1:])
    train = read(files[0], "train")
    for part in tests.values():
        if strange := sorted(part.label_names - train.label_names):
            logger.warning("%s: labels that %s lacks are wrong: %s", part.name, train.name, ", ".join(strange[:9]))
    return Probe(name, train, tests)
