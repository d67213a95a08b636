"""Arguments of the recipes that train on parallel text, in dataclasses."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, Literal

from hf_xalign.checks import GIVEN, excludes, setting
from hf_xalign.data.sources import check_files, check_models

_DATA = "Model and data"


def option(group: str, help: str, default: object = MISSING, **checks: object) -> Any:
    """Return the dataclass field of a command-line option under the heading `group`; required without a default."""
    return setting(default, help=help, group=group, **checks)


@dataclass
class PairColumns:
    """Pivot, columns and empty sides of sentence pairs."""

    target_lang: str = option(_DATA, "The pivot language, the target column.", "en")
    source_column: str | None = option(_DATA, "Column of source text. By default it is found by its name.", None)
    target_column: str | None = option(_DATA, "Column of target text. By default it is found by its name.", None)
    sides_checked: bool = option(_DATA, "Read text whose sides look swapped or like no sentences.", False)
    on_empty: Literal["error", "drop"] = option(_DATA, "What to do with a pair that has an empty side.", "error")
    dataset_revision: str | None = option(_DATA, "Branch, tag or commit of Hub datasets.", None)

    def columns(self) -> dict[str, Any]:
        """Return the arguments of `load_parallel` for these fields."""
        names = ("target_lang", "source_column", "target_column", "sides_checked", "on_empty")
        return {"revision": self.dataset_revision, **{name: getattr(self, name) for name in names}}


@dataclass
class ParallelText(PairColumns):
    """Parallel text of a run."""

    train_data: list[str] = option(
        _DATA,
        "Parallel text: builtin:de, LANG=FILE (TSV, CSV, JSONL, JSON, Parquet, TMX), LANG=FILE1,FILE2, "
        "LANG=HUB_ID[:CONFIG].",
        ["builtin:de", "builtin:bn"],
    )
    eval_data: list[str] = option(_DATA, "Held-out text, in the form of train_data.", ["builtin:de", "builtin:bn"])
    train_split: str = option(_DATA, "Split of built-in and Hub training data.", "train")
    eval_split: str = option(_DATA, "Split of built-in and Hub held-out data.", "test")
    max_eval_pairs: int | None = option(_DATA, "Use the first n pairs of each held-out source.", None, least=1)

    def check_files(self) -> None:
        """Refuse files that are not there."""
        check_files([*self.train_data, *([] if getattr(self, "eval_links", None) else self.eval_data)])


@dataclass
class TextArguments(ParallelText):
    """The encoder and the text of a run."""

    # True if the encoder may be below an adapter, as that of maps.
    maps_adapters: ClassVar[bool] = False

    model_name_or_path: str = option(
        _DATA, "Encoder: a Hub id, a folder, or `builtin` (no network needed).", "builtin"
    )
    max_train_pairs: int | None = option(
        _DATA, "Use n pairs of each training source that pass the filters, selected by draw.", None, least=1
    )
    model_revision: str = option(_DATA, "Branch, tag or commit of a Hub model.", "main")
    probe: list[str] = option(
        "Run",
        "Frozen probes to score before and after: NAME (or NAME:COLUMN of the labels), LANG=FILE to train on and "
        "LANG=FILE to test on, then the next NAME, as in `hf-xalign evaluate`. `pos builtin:en builtin:de` "
        "are parts of speech of the built-in text.",
        [],
    )
    seeds: list[int] = option(
        "Run",
        "Seeds, one run each in a folder seed-<number> of output_dir. The text is drawn and linked once, by seed. "
        "Finished seeds are kept, and compare reads the folder. Default: seed alone.",
        [],
        least=0,
        distinct=True,
        rules=[
            excludes("every seed would go to the same place; hf-xalign push sends one", push_to_hub=True),
            excludes("seeds resume by themselves", resume_from_checkpoint=GIVEN),
        ],
    )
    dry_run: bool = option("Run", "Show data, links, cache size and an estimate of the time; train nothing.", False)

    def check_files(self) -> None:
        """Refuse files and folders that are not there."""
        super().check_files()
        check_models([self.model_name_or_path], adapters=self.maps_adapters)


@dataclass
class DataArguments(TextArguments):
    """The encoder, the text and the word links of a run."""

    aligner: str = option(
        "Word links",
        "fast_align, hmm, ibm1 to ibm4, eflomal (all by sil-thot), pharaoh:PATH, dictionary:PATH, encoder (the one to "
        "train), or encoder:MODEL (another, such as the folder of a run).",
        "fast_align",
    )
    symmetrization: Literal["intersection", "union", "grow-diag", "grow-diag-final-and"] = option(
        "Word links", "How to combine the two directions of the aligner.", "intersection"
    )
    one_to_one: bool = option("Word links", "A word with two links loses all its links.", True)
    eval_links: str | None = option(
        "Word links", "eval_links.jsonl of another run, to score on the same links. Overrides eval_data.", None
    )
    protocol: list[str] = option(
        "Word links",
        "Also score by these protocols: mao (as published), or identical, specials, legacy, cosine, joined by +.",
        [],
    )

    def check_files(self) -> None:
        """Refuse files that are not there."""
        super().check_files()
        check_files(filter(None, [self.eval_links]))
        kind, _, path = self.aligner.partition(":")
        if kind in ("pharaoh", "dictionary") and "{lang}" not in path:
            check_files([path])
