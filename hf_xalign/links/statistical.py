"""Statistical word aligners of sil-thot: fast_align, HMM, IBM 1 to 4, eflomal."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.links.symmetrization import Symmetrization

if TYPE_CHECKING:
    from thot import alignment as models

# EM iterations of each model, as in GIZA++ and the C++ fast_align; thot's own trainer runs four.
_ITERATIONS = 5
# Each model starts from the trained one before it, as in GIZA++. Without IBM 3, IBM 4 takes half the time with the
# same error rate.
_CHAINS: dict[str, tuple[str, ...]] = {
    "fast_align": ("FastAlignModel",),
    "eflomal": ("EflomalAlignmentModel",),
    "ibm1": ("Ibm1AlignmentModel",),
    "ibm2": ("Ibm1AlignmentModel", "Ibm2AlignmentModel"),
    "hmm": ("Ibm1AlignmentModel", "HmmAlignmentModel"),
    "ibm3": ("Ibm1AlignmentModel", "HmmAlignmentModel", "Ibm3AlignmentModel"),
    "ibm4": ("Ibm1AlignmentModel", "HmmAlignmentModel", "Ibm4AlignmentModel"),
}
STATISTICAL_ALIGNERS = tuple(_CHAINS)
DIRECTIONS = FORWARD, BACKWARD = "source to target", "target to source"
_NAME = "model"  # of Thot's files in a folder
# Thot takes these for its empty position and for unknown words.
_RESERVED = {"NULL", "UNKNOWN_WORD", "<UNUSED_WORD>"}
# Private-use character that no text has; it stands for what Thot's saved vocabulary cannot hold.
_STAND_IN = "\ue000"
_WHITE_SPACE = re.compile(r"\s")  # at which a word of Thot's saved vocabulary ends


def safe_words(words: Sequence[str]) -> Sequence[str]:
    """Return words as Thot can tell them apart and save them: without white space, and none empty or reserved.

    Thot saves its vocabulary as lines of `number word`, reads a word up to its first blank, and reports no error.
    """
    if " ".join(words).split() == words and _RESERVED.isdisjoint(words):
        return words
    return [
        _STAND_IN + word if not word or word in _RESERVED else _STAND_IN.join(_WHITE_SPACE.split(word))
        for word in words
    ]


def import_thot() -> Any:
    """Import sil-thot, or raise an InputError. There is no wheel for Linux on aarch64."""
    try:
        import thot.alignment
    except ImportError as error:
        raise InputError(
            f"the aligners {', '.join(STATISTICAL_ALIGNERS)} need sil-thot, which is not installed (Linux on aarch64 "
            "has no wheel). Align with encoder, pharaoh:PATH or dictionary:PATH. Recipes also need --eval_links, the "
            "eval_links.jsonl of a run elsewhere."
        ) from error
    return thot


class StatisticalLinker:
    """Link the words of a language pair by two directional models of [`fit`], and symmetrise the links.

    `too_long` counts the sentence pairs that were too long to link.
    """

    def __init__(
        self,
        forward: models.AlignmentModel,
        backward: models.AlignmentModel,
        symmetrization: Symmetrization = "intersection",
    ):
        self.directions = forward, backward
        self.too_long = 0
        alignment = import_thot().alignment
        self._aligner = alignment.SymmetrizedAligner(forward, backward)
        self._aligner.heuristic = getattr(alignment.SymmetrizationHeuristic, symmetrization.replace("-", "_").upper())

    def __call__(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """Return the links [i, j] of each sentence pair, given as words.

        Thot finds no links in sentences of more than 1,024 words (200 for HMM, IBM 3 and 4); `too_long` counts them.
        """
        limit = self.directions[0].max_sentence_length
        fitting = [k for k, pair in enumerate(zip(sources, targets, strict=True)) if max(map(len, pair)) <= limit]
        self.too_long += len(sources) - len(fitting)
        links: list[list[list[int]]] = [[] for _ in sources]
        # For the others, Thot would allocate whole matrices: 100 MB for two sides of 10,000 words.
        source_words = [safe_words(sources[k]) for k in fitting]
        target_words = [safe_words(targets[k]) for k in fitting]
        found = self._aligner.get_best_alignments(source_words, target_words)
        for k, (_, matrix) in zip(fitting, found, strict=True):
            links[k] = np.argwhere(matrix.to_numpy()).tolist()
        return links


def fit(
    aligner: str,
    pairs: Iterable[tuple[Sequence[str], Sequence[str]]],
    directions: Sequence[str] = DIRECTIONS,
    *,
    seed: int = 0,
    desc: str | None = None,
) -> list[models.AlignmentModel]:
    """Fit the model of each direction on pairs of source and target words, which are read once.

    `fast_align` is from Dyer et al. 2013, `eflomal` from Östling and Tiedemann 2016; only eflomal uses `seed`. Thot
    keeps the pairs in memory. Pairs with an empty side are skipped.
    """
    first, *others = _classes(aligner)
    fitted = [first() for _ in directions]
    for pair in pairs:
        if all(pair):
            sides = list(map(safe_words, pair))
            for model, direction in zip(fitted, directions, strict=True):
                model.add_sentence_pair(*(sides if direction == FORWARD else sides[::-1]))
    with one_thread():
        for number, direction in enumerate(directions):
            label = desc and f"{desc}, {direction}"
            _train(fitted[number], seed, label)
            for model_class in others:
                fitted[number] = model_class(fitted[number])
                _train(fitted[number], seed, label)
    return fitted


def save_model(model: models.AlignmentModel, folder: Path) -> None:
    """Write a fitted model, without the sentences that it was fitted on, into an empty folder."""
    model.print(str(folder / _NAME))
    for suffix in ("src", "trg", "srctrgc"):
        (folder / f"{_NAME}.{suffix}").write_bytes(b"")
    # Thot does not report failed writes. On a full disk, or at a limit of file sizes, this write fails too.
    with (folder / "probe").open("wb") as probe:
        probe.seek(max(path.stat().st_size for path in folder.iterdir()))
        probe.write(bytes(1 << 16))
        probe.flush()
        os.fsync(probe.fileno())
    (folder / "probe").unlink()


def load_model(aligner: str, folder: Path) -> models.AlignmentModel:
    """Load the model that [`save_model`] wrote."""
    model = _classes(aligner)[-1]()
    if not model.load(str(folder / _NAME)):
        raise InputError(f"{folder} cannot be read as a model of {aligner}. Remove the folder and run again.")
    return model


def _classes(aligner: str) -> list[Any]:
    return [getattr(import_thot().alignment, name) for name in _CHAINS[aligner]]


def _train(model: Any, seed: int, desc: str | None) -> None:
    if hasattr(model, "scheduled_iterations"):
        model.seed, model.deterministic = seed, True
    model.start_training()
    # eflomal chooses its own number when it starts.
    rounds = getattr(model, "scheduled_iterations", _ITERATIONS)
    for _ in progress(range(rounds), desc=desc):
        model.train()
    model.end_training()


def one_thread() -> threadpool_limits:
    """Limit OpenMP to one thread, because several sum in varying order, which changes one link in 70,000.

    Thot has its own OpenMP runtime, but uses torch's if torch was loaded first, so both are limited.
    """
    # Only libraries that are loaded are limited.
    import_thot()
    return threadpool_limits(1, "openmp")
