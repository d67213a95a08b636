"""Arguments of `hf-xalign train mapping`: files of encoders, word vectors, dictionaries and text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hf_xalign.checks import GIVEN, needs
from hf_xalign.data.sources import check_files, check_models
from hf_xalign.recipes.parts.arguments import DataArguments, option
from hf_xalign.trainers.mapping_config import MappingConfig, VectorsFormat


@dataclass
class MappingText(DataArguments):
    """The encoder, or the adapter on it, and the text of a run."""

    maps_adapters: ClassVar[bool] = True


@dataclass
class MappingArguments(MappingConfig):
    """Settings of the maps, and the files that they are learnt from."""

    source_model: str | None = option(
        "Run", "Encoder of the other languages, if the pivot has another. Default: model_name_or_path.", None
    )
    target_model: str | None = option("Run", "Encoder of the pivot. Default: model_name_or_path.", None)
    source_vectors: str | None = option(
        "Word vectors",
        "Map this file of word vectors, FILE or LANG=FILE: .vec or .txt of word2vec, fastText or GloVe, .bin of "
        "word2vec, each also .gz. No encoder and no text is read, and dictionaries need no LANG.",
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
    vectors_format: VectorsFormat = option(
        "Word vectors",
        "Format of the mapped vectors of both languages.",
        "safetensors",
        rules=[needs(source_vectors=GIVEN)],
    )
    draw: Literal["first", "seed"] = option("Word links", "max_train_pairs: the first pairs, or a draw.", "seed")
    dictionary: list[str] = option(
        "Dictionaries", "Training dictionaries in MUSE's format, LANG=FILE; the columns may come in any order.", []
    )
    test_dictionary: list[str] = option(
        "Dictionaries",
        "Dictionaries for scoring lexicon induction, of the same format. Word vectors: by default a fixed fifth of "
        "the source words of dictionary, which are then not learnt from.",
        [],
    )
    text: list[str] = option(
        "Anchors", "Text for anchors beside train_data's: LANG=FILE (.txt, .jsonl, .parquet) or LANG=HUB_ID.", []
    )

    def __post_init__(self) -> None:
        if self.source_vectors and self.target_vectors:
            self.supervision = "dictionary"
        super().__post_init__()

    def check_files(self) -> None:
        """Refuse files and folders that are not there."""
        check_models([self.source_model, self.target_model])
        vectors = filter(None, [self.source_vectors, self.target_vectors])
        check_files([*self.dictionary, *self.test_dictionary, *self.text, *vectors])
