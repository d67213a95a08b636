"""Statistical word aligners (sil-thot), in process: fast_align, HMM, IBM 1 to 4, eflomal."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, get_args

import numpy as np
import thot
from thot import alignment as models
from tqdm.auto import tqdm

from hf_xalign.data.symmetrization import Symmetrization, heuristic

logger = logging.getLogger(__name__)

StatisticalAligner = Literal["fast_align", "hmm", "ibm1", "ibm2", "ibm3", "ibm4", "eflomal"]
STATISTICAL_ALIGNERS: tuple[str, ...] = get_args(StatisticalAligner)

# EM iterations a model. The C++ fast_align runs five where thot's own trainer runs four; GIZA++ runs five too.
_ITERATIONS = 5
# A model starts from the trained one before it, as in GIZA++ (IBM 4 straight from the HMM: half the time of the way
# through IBM 3, the same error rate).
_CHAINS: dict[str, tuple[type, ...]] = {
    "fast_align": (models.FastAlignModel,),
    "eflomal": (models.EflomalAlignmentModel,),
    "ibm1": (models.Ibm1AlignmentModel,),
    "ibm2": (models.Ibm1AlignmentModel, models.Ibm2AlignmentModel),
    "hmm": (models.Ibm1AlignmentModel, models.HmmAlignmentModel),
    "ibm3": (models.Ibm1AlignmentModel, models.HmmAlignmentModel, models.Ibm3AlignmentModel),
    "ibm4": (models.Ibm1AlignmentModel, models.HmmAlignmentModel, models.Ibm4AlignmentModel),
}


class StatisticalLinker:
    """Two directional models of one language pair and their symmetrised links.

    Args:
        aligner: which model; `fast_align` is Dyer et al. 2013, `eflomal` Östling and Tiedemann 2016.
        pairs: (source words, target words) to fit the models on, read once; thot keeps them in memory. Pairs with
            an empty side are left out.
        symmetrization: how the links of the two directions are combined.
        seed: of eflomal's sampling; the other models draw nothing.
        deterministic: fit on one core, so that the links are the same in every run. Otherwise thot sums in the order
            in which its threads arrive, and about one link of 70,000 differs between runs.
        desc: label of the progress bar.
    """

    def __init__(
        self,
        aligner: StatisticalAligner,
        pairs: Iterable[tuple[Sequence[str], Sequence[str]]],
        *,
        symmetrization: Symmetrization = "intersection",
        seed: int = 0,
        deterministic: bool = True,
        desc: str | None = None,
    ):
        chain = _CHAINS[aligner]
        forward, backward = chain[0](), chain[0]()
        for source, target in pairs:
            if source and target:
                forward.add_sentence_pair(source, target)
                backward.add_sentence_pair(target, source)
        with _threads(1 if deterministic else None):
            forward = _train(chain, forward, seed, deterministic, desc and f"{desc}, source to target")
            backward = _train(chain, backward, seed, deterministic, desc and f"{desc}, target to source")
        self.too_long = 0
        self._max_length = forward.max_sentence_length
        self._aligner = models.SymmetrizedAligner(forward, backward)
        self._aligner.heuristic = heuristic(symmetrization)

    def __call__(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The links [i, j] of each sentence pair, given as words.

        Thot finds no link in a sentence of more than 1,024 words (200 for HMM, IBM 3 and 4): `too_long` counts those.
        """
        self.too_long += sum(max(len(s), len(t)) > self._max_length for s, t in zip(sources, targets, strict=True))
        return [np.argwhere(matrix.to_numpy()).tolist() for _, matrix in self._aligner.get_best_alignments(sources, targets)]


def _train(
    chain: tuple[type, ...], model: models.AlignmentModel, seed: int, deterministic: bool, desc: str | None
) -> models.AlignmentModel:
    """Train the first model of a chain, which holds the sentences already, and each later one from it."""
    for position, model_class in enumerate(chain):
        if position:
            model = model_class(model)
        if isinstance(model, models.EflomalAlignmentModel):
            model.seed = seed
            model.deterministic = deterministic
        model.start_training()
        # Eflomal plans its own number of sampling rounds once it knows the corpus; each train() call is one of them.
        eflomal = isinstance(model, models.EflomalAlignmentModel)
        rounds = model.scheduled_iterations if eflomal else _ITERATIONS
        hidden = desc is None or int(os.environ.get("RANK", "0")) != 0
        for _ in tqdm(range(rounds), desc=desc, disable=hidden):
            model.train()
        model.end_training()
    return model


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Bound the threads of thot's OpenMP runtime for a while; None leaves them as they are."""
    runtime = ctypes.CDLL(thot.__file__)
    if count is None:
        yield
        return
    if not hasattr(runtime, "omp_set_num_threads"):  # Windows looks a name up in the library alone, not in what it links
        logger.warning("cannot bound the aligner's threads here: a link of some ten thousand may differ between runs")
        yield
        return
    before = runtime.omp_get_max_threads()
    runtime.omp_set_num_threads(count)
    try:
        yield
    finally:
        runtime.omp_set_num_threads(before)
