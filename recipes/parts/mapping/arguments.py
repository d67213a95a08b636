"""Arguments of `hf-xalign train mapping`, in addition to those of its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from hf_xalign.checks import GIVEN, ONE, check, needs
from hf_xalign.config import non_default_fields
from hf_xalign.data.sources import check_files, check_models
from hf_xalign.recipes.parts.arguments import DataArguments, option
from hf_xalign.record import cite

Method = Literal["procrustes", "least_squares", "rcsls", "vecmap", "self_learning"]

_ROTATE = cite(
    "Cross-lingual Alignment Methods for Multilingual BERT: A Comparative Study",
    "2020.findings-emnlp.83",
    "kulshreshtha2020crosslingual",
    "Kulshreshtha, Saurabh and Redondo-Garcia, Jose Luis and Chang, Ching-Yun",
    "Findings of the Association for Computational Linguistics: EMNLP 2020",
    2020,
)
_LEAST_SQUARES = cite(
    "Exploiting Similarities among Languages for Machine Translation",
    "1309.4168",
    "mikolov2013exploiting",
    "Mikolov, Tomas and Le, Quoc V. and Sutskever, Ilya",
    "arXiv preprint arXiv:1309.4168",
    2013,
)
_MUSE = cite(
    "Word Translation Without Parallel Data",
    "1710.04087",
    "conneau2018word",
    "Conneau, Alexis and Lample, Guillaume and Ranzato, Marc'Aurelio and Denoyer, Ludovic and J{\\'e}gou, Herv{\\'e}",
    "International Conference on Learning Representations",
    2018,
)
_RCSLS = cite(
    "Loss in Translation: Learning Bilingual Word Mapping with a Retrieval Criterion",
    "D18-1330",
    "joulin2018loss",
    "Joulin, Armand and Bojanowski, Piotr and Mikolov, Tomas and J{\\'e}gou, Herv{\\'e} and Grave, Edouard",
    "Proceedings of the 2018 Conference on Empirical Methods in Natural Language Processing",
    2018,
)
_VECMAP = cite(
    "Generalizing and Improving Bilingual Word Embedding Mappings with a Multi-Step Framework of Linear "
    "Transformations",
    "10.1609/aaai.v32i1.11992",
    "artetxe2018generalizing",
    "Artetxe, Mikel and Labaka, Gorka and Agirre, Eneko",
    "Proceedings of the AAAI Conference on Artificial Intelligence",
    2018,
)
_VECMAP_ORTHOGONAL = cite(
    "Learning principled bilingual mappings of word embeddings while preserving monolingual invariance",
    "D16-1250",
    "artetxe2016learning",
    "Artetxe, Mikel and Labaka, Gorka and Agirre, Eneko",
    "Proceedings of the 2016 Conference on Empirical Methods in Natural Language Processing",
    2016,
)
_SELF_LEARNING = cite(
    "A robust self-learning method for fully unsupervised cross-lingual mappings of word embeddings",
    "P18-1073",
    "artetxe2018robust",
    "Artetxe, Mikel and Labaka, Gorka and Agirre, Eneko",
    "Proceedings of the 56th Annual Meeting of the Association for Computational Linguistics",
    2018,
)


@dataclass
class MappingText(DataArguments):
    """The encoder, or the adapter on it, and the text of a run."""

    maps_adapters: ClassVar[bool] = True


@dataclass
class MappingArguments:
    """Method, supervision and vectors of a map."""

    output_dir: str = option("Run", "Output folder. A folder that holds a run is an error.", "runs/mapping")
    overwrite_output_dir: bool = option("Run", "Replace the run in output_dir once this one is done.", False)
    source_model: str | None = option(
        "Run", "Encoder of the other languages, if the pivot has another. Default: model_name_or_path.", None
    )
    target_model: str | None = option("Run", "Encoder of the pivot. Default: model_name_or_path.", None)
    source_vectors: str | None = option(
        "Word vectors",
        "Map this file of word vectors, FILE or LANG=FILE: .vec or .txt of word2vec, fastText or GloVe, .bin of "
        "word2vec, each also .gz. No encoder and no text is read, and the dictionary's columns may come in any order.",
        None,
        rules=[needs(target_vectors=GIVEN)],
    )
    target_vectors: str | None = option(
        "Word vectors",
        "Word vectors of the pivot, in the form of source_vectors.",
        None,
        rules=[needs(source_vectors=GIVEN)],
    )
    max_vectors: int = option(
        "Word vectors",
        "Use the first n words of each file, the most frequent.",
        200_000,
        least=1,
        rules=[needs(source_vectors=GIVEN)],
    )
    vectors_format: Literal["safetensors", "vec", "vec.gz"] = option(
        "Word vectors",
        "Format of the mapped vectors of both languages.",
        "safetensors",
        rules=[needs(source_vectors=GIVEN)],
    )
    method: Method = option(
        "Map",
        "RotateAlign is procrustes; self_learning is VecMap's loop from a small seed dictionary.",
        "procrustes",
        rules=[needs(when="self_learning", supervision="dictionary", layers=ONE)],
    )
    center: bool = option(
        "Map",
        "procrustes, least_squares, rcsls: subtract the means (NormRotateAlign). VecMap always does.",
        True,
        rules=[needs(method=("procrustes", "least_squares", "rcsls"))],
    )
    whiten: bool = option(
        "Map",
        "vecmap, self_learning: whiten and re-weight; false (orthogonal) needs fewer pairs.",
        True,
        rules=[needs(method=("vecmap", "self_learning"))],
    )
    spectral: bool = option("Map", "rcsls: clip the singular values to [0, 1].", False, rules=[needs(method="rcsls")])
    rcsls_epochs: int = option(
        "Map",
        "rcsls: steps over all pairs (fastText takes one more than --niter).",
        10,
        least=0,
        rules=[needs(method="rcsls")],
    )
    rcsls_learning_rate: float = option(
        "Map", "rcsls: initial learning rate, halved when the loss rises.", 1.0, rules=[needs(method="rcsls")]
    )
    linear: bool = option(
        "Map",
        "rcsls, vecmap: divide by mean lengths, not by each vector's, so that a model can hold the map.",
        False,
        rules=[needs(method=("rcsls", "vecmap", "self_learning"))],
    )
    refine: int = option(
        "Map",
        "procrustes on dictionaries: rounds of MUSE's refinement.",
        0,
        least=0,
        rules=[needs(method="procrustes", supervision="dictionary", layers=ONE)],
    )
    direction: Literal["to_pivot", "from_pivot"] = option(
        "Map", "Map other languages into the pivot's space, or the pivot into that of one other (ROTATE).", "to_pivot"
    )
    supervision: Literal["parallel", "dictionary"] = option(
        "Map",
        "Learn from linked words of train_data, or from dictionary entries.",
        "parallel",
        rules=[needs(when="dictionary", dictionary=GIVEN)],
    )
    layers: list[int] = option("Map", "Layers to map; -1 is the last. ROTATE uses -4 -3 -2 -1.", [-1], distinct=True)
    pooling: Literal["first", "last", "mean"] = option("Map", "Subwords that make a word's vector.", "mean")
    drop_identical: bool = option("Word links", "Drop links between identical words.", False)
    draw: Literal["first", "seed"] = option("Word links", "max_train_pairs: the first pairs, or a draw.", "seed")
    dictionary: list[str] = option("Dictionaries", "Training dictionaries in MUSE's format, LANG=FILE.", [])
    test_dictionary: list[str] = option(
        "Dictionaries",
        "Dictionaries for scoring lexicon induction, of the same format. Word vectors: by default a fixed fifth of "
        "the source words of dictionary, which are then not learnt from.",
        [],
    )
    dictionary_order: Literal["pivot_first", "other_first"] = option(
        "Dictionaries", "Whose word is first in each line of both: of MUSE's, en-de or de-en.", "pivot_first"
    )
    text: list[str] = option(
        "Anchors",
        "Text for anchors beside train_data's: LANG=FILE (.txt, .jsonl, .parquet) or LANG=HUB_ID.",
        [],
    )
    anchor_pairs: bool = option("Anchors", "Average over train_data's sentences too; false: over text alone.", True)
    max_words: int = option("Anchors", "Number of most frequent words that get an anchor.", 20_000, least=1)
    sentences_per_word: int | None = option(
        "Anchors",
        "Maximum number of sentences averaged into an anchor; null: all occurrences, as in ROTATE.",
        100,
        least=1,
    )
    batch_size: int = option("Run", "Sentences per forward pass.", 64, least=1)
    ray: str | None = option("Run", "Ray cluster that averages anchors: its address, auto or local.", None)
    device: str | None = option("Run", "cpu, cuda, ... The default is the accelerator, or the CPU without one.", None)
    seed: int = option("Run", "Seed of self_learning and of bootstrap intervals.", 0, least=0)

    def __post_init__(self) -> None:
        if self.source_vectors:
            self.supervision = "dictionary"
        check(self)

    def check_files(self) -> None:
        """Refuse files and folders that are not there."""
        check_models([self.source_model, self.target_model])
        vectors = filter(None, [self.source_vectors, self.target_vectors])
        check_files([*self.dictionary, *self.test_dictionary, *self.text, *vectors])

    def changed(self) -> dict[str, Any]:
        """Return the arguments that differ from their defaults, without the output folder."""
        return {name: value for name, value in non_default_fields(self).items() if "output_dir" not in name}

    def formula(self) -> str:
        """Return the objective of the map as plain text."""
        formulas = {
            "procrustes": "W = argmin ||X_s W^T - X_t||, W^T W = 1",
            "least_squares": "W = argmin ||X_s W^T - X_t||",
            "rcsls": "W = argmin mean_i [-2 (W x_i).y_i + mean_{y in N(W x_i)} (W x_i).y + mean_{x in N(y_i)} "
            "(W x).y_i], unit vectors, N = the 10 nearest",
            "vecmap": "W_x, W_z: whiten, rotate by U, V of U S V^T = X^T Z, weight by S^1/2, de-whiten; X, Z unit, "
            "centered, unit",
            "self_learning": "VecMap's loop: rotate, induce a dictionary by CSLS, again; at last "
            + ("whiten and re-weight" if self.whiten else "rotate"),
        }
        if self.method == "vecmap" and not self.whiten:
            formulas["vecmap"] = "W = U V^T of U S V^T = X_t^T X_s; X_s, X_t unit, centered, unit"
        affine = "; applied as e -> W (e - mean_s) + mean_t"
        centered = {"procrustes": affine, "least_squares": affine, "rcsls": ", centered and unit again"}
        refined = f"; {self.refine} rounds of refinement by induced pairs" if self.refine else ""
        refined += "; then lengths of vectors replaced by their means" if self.linear else ""
        return formulas[self.method] + (centered.get(self.method, "") if self.center else "") + refined

    def paper(self) -> dict[str, str]:
        """Return `title`, `id` and `bibtex` of the method's paper."""
        if self.method == "procrustes":
            return _MUSE if self.refine else _ROTATE
        if self.method == "vecmap":
            return _VECMAP if self.whiten else _VECMAP_ORTHOGONAL
        return {"least_squares": _LEAST_SQUARES, "rcsls": _RCSLS, "self_learning": _SELF_LEARNING}[self.method]
