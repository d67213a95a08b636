"""Trainer of a map between two sets of word vectors, as MUSE, VecMap and fastText learn it, without an encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from hf_xalign.cache import inside
from hf_xalign.checks import check_choice
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import read_protocols
from hf_xalign.mapping.anchors import Anchors
from hf_xalign.mapping.word2vec import write_word2vec
from hf_xalign.modeling.loading import choose_device
from hf_xalign.modeling.maps import LanguageMap, unit
from hf_xalign.record import phase
from hf_xalign.score import Score
from hf_xalign.trainers.base.run import Reporting, finish
from hf_xalign.trainers.mapping import Entries, MapLearner, check_entries
from hf_xalign.trainers.mapping_config import MappingConfig, VectorsFormat

VECTORS = "vectors"
# Rows copied at a time.
_ROWS = 4096
# Without a test dictionary, one word of the source in so many is held out.
HELD_OUT = 5


class WordVectorTrainer(MapLearner):
    """Learn a map between the word vectors of a language and of the pivot from a dictionary, and map both.

    `train` returns the map by the source language, which also maps the vectors in their memory, divided by their
    lengths. `save_model` writes mapped vectors, map, record and card, as `hf-xalign train mapping --source_vectors`.

    Args:
        source: word vectors of a language with one layer and a `lang`, of [`~hf_xalign.mapping.read_word2vec`]. They
            are changed.
        target: those of the pivot.
        args: settings; those about an encoder or text have no effect.
        dictionary: entries (word of the target, word of the source) to learn from.
        test_dictionary: entries to test on. Their source words are not learnt from. By default those of a fixed fifth
            of the dictionary's source words.
        name: name of the vectors in record and card.
        reporting: what a script adds to the record of the run.
        files: names of the vectors' files in record and card, by `("vectors", language)`.

    Raises:
        InputError: the languages are missing or equal, or too few entries are left to learn from or to test on.

    Example:
        >>> import tempfile, torch
        >>> vectors = torch.eye(3).unsqueeze(1)
        >>> german = Anchors(["eins", "zwei", "sechs"], vectors.roll(1, 0), torch.ones(3), lang="de")
        >>> english = Anchors(["one", "two", "six"], vectors, torch.ones(3), lang="en")

        >>> entries = [("one", "eins"), ("two", "zwei"), ("six", "sechs")]
        >>> args = MappingConfig(tempfile.mkdtemp(), center=False, device="cpu")
        >>> trainer = WordVectorTrainer(german, english, args, dictionary=entries, test_dictionary=entries[2:])
        >>> list(trainer.train())
        ['de']
    """

    def __init__(
        self,
        source: Anchors,
        target: Anchors,
        args: MappingConfig | None = None,
        *,
        dictionary: Entries,
        test_dictionary: Entries | None = None,
        name: str = "word vectors",
        reporting: Reporting | None = None,
        files: Mapping[tuple[str, str], str] | None = None,
    ):
        for name, anchors in (("source", source), ("target", target)):
            if anchors.lang is None or anchors.vectors.shape[1] != 1:
                raise InputError(f"{name}: give word vectors of one layer, and name their language by lang")
        if source.lang == target.lang:
            raise InputError(f"source and target are both in {source.lang}. Give vectors of two languages.")
        super().__init__(args, name, str(target.lang), [str(source.lang)], reporting, files)
        # Rules between settings hold of what is learnt from.
        self.args = replace(self.args, supervision="dictionary")
        device = choose_device(self.args.device)
        for anchors in (source, target):
            unit(anchors.vectors, out=anchors.vectors)  # as every published method does
            self.anchors[str(anchors.lang)] = replace(anchors, vectors=anchors.vectors.to(device))
        self.text = {"license": "unknown"}
        code = str(source.lang)
        entries = check_entries({code: dictionary}, "dictionary")[code]
        train, test = hold_out(entries, check_entries({code: test_dictionary or []}, "test_dictionary")[code])
        known = source.lookup([word for _, word in test]).ge(0) & target.lookup([word for word, _ in test]).ge(0)
        if not known.any():
            raise InputError(f"test_dictionary: no entry of {len(test)} has a vector in {code} and in {target.lang}")
        self.dictionary, self.test_dictionary, self.known = {code: train}, {code: test}, {code: entries}

    def train(self) -> dict[str, LanguageMap]:
        """Learn the map, map the vectors of both languages in place, score lexicon induction, and return the map."""
        if self.maps:
            raise InputError("train was called before, and the vectors are mapped: make a new trainer of new vectors")
        self.start()
        self.record["base_model"]["hub_id"] = None
        self.learn_all()
        [language], direction = self.languages, self.args.direction
        with phase(self.record, "mapping"):
            learned = self.maps[language] = of_any_length(self.maps[language])
            sides = ("source", "target") if direction == "to_pivot" else ("target", "source")
            for code, side in zip((language, self.pivot), sides):
                self.anchors[code] = replace(
                    self.anchors[code], vectors=map_in_place(self.anchors[code].vectors, learned, side)
                )
        with phase(self.record, "scoring"):
            protocols = read_protocols(["cosine"])
            scores, bounds = self.induction(language, 0, lambda *vectors: vectors, protocols, Score("bli"))
            self.show(f"scored   {scores['bli_coverage']:.1%} of the test entries, those with both vectors")
            self.record["scores"]["after"] = {language: scores}
            self.record["intervals"] = {"before": {}, "after": {language: bounds}}
        return self.maps

    def save_model(self, output_dir: str | None = None, vectors_format: VectorsFormat = "safetensors") -> None:
        """Write the mapped vectors of both languages, the map, card and record, in the place of an earlier run.

        Args:
            output_dir: the folder; default: that of the settings.
            vectors_format: of the files of vectors.
        """
        check_choice(get_args(VectorsFormat), vectors_format=vectors_format)
        folder = Path(output_dir or self.args.output_dir)
        with phase(self.record, "writing"):
            saved = self.save_maps(folder)  # the old record goes first
            for path in (folder / VECTORS).glob("*"):
                path.unlink()
            written = {}
            for code, anchors in self.anchors.items():
                file = inside(folder / VECTORS, f"{code}.{vectors_format}")
                cpu = replace(anchors, vectors=anchors.vectors.cpu())
                cpu.save(file) if vectors_format == "safetensors" else write_word2vec(cpu, file)
                written[code] = f"{VECTORS}/{file.name}"
            names = {code: self.files.get(("vectors", code), f"vectors of {code}") for code in self.anchors}
            self.record["maps"]["vectors"] = {"from": names, "files": written}
        finish(self.record, folder, {"mapped vectors": str(folder / VECTORS), **saved})


def hold_out(dictionary: Entries, test_dictionary: Entries | None = None) -> tuple[Entries, Entries]:
    """Return the entries to learn from and to test on: no source word of the test is learnt from."""
    if test_dictionary:
        held_out = {word for _, word in test_dictionary}
    else:
        held_out = {word for _, word in dictionary if _is_held_out(word)}
        test_dictionary = [entry for entry in dictionary if entry[1] in held_out]
    kept = [entry for entry in dictionary if entry[1] not in held_out]
    if not kept or not test_dictionary:
        raise InputError(
            f"dictionary: {len(kept)} entries are left to learn from and {len(test_dictionary)} to test on. Use a "
            "larger dictionary, or another test_dictionary."
        )
    return kept, test_dictionary


def _is_held_out(word: str) -> bool:
    """Return whether a source word is for testing. A hash decides, so that every run has the same split."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big") % HELD_OUT == 0


def of_any_length(language_map: LanguageMap) -> LanguageMap:
    """Return a map learnt on vectors of length 1 for vectors as they are in the file."""
    if not language_map.source.means or language_map.source.steps[0] == "unit":
        return language_map
    return replace(language_map, source=replace(language_map.source, steps=("unit", *language_map.source.steps)))


def map_in_place(vectors: Tensor, language_map: LanguageMap, side: Any) -> Tensor:
    """Map vectors, in their own memory where the size stays."""
    if language_map.project(vectors[:1], side).shape[-1] != vectors.shape[-1]:
        return torch.cat([language_map.project(part, side) for part in vectors.split(_ROWS)])
    for part in vectors.split(_ROWS):
        part.copy_(language_map.project(part, side))
    return vectors
