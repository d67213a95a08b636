"""Trainer of a linear map between the word vectors of two languages, without an encoder and without text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from hf_xalign.cache import inside
from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.data.words import lower_word
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import read_protocols
from hf_xalign.mapping.anchors import Anchors
from hf_xalign.mapping.word2vec import write_word2vec
from hf_xalign.modeling.loading import choose_device
from hf_xalign.modeling.maps import LanguageMap, unit
from hf_xalign.record import phase
from hf_xalign.trainers.base.run import Reporting
from hf_xalign.trainers.mapping.base import Entries, MapTrainer, anchor_words
from hf_xalign.trainers.mapping.trainer_config import MappingConfig, VectorsFormat

# Folder of the mapped vectors, next to the record.
VECTORS = "vectors"
# Without a test dictionary, one source word of the dictionary in so many is held out.
HELD_OUT = 5
# Rows that are mapped at a time.
_ROWS = 4096


class VectorMappingTrainer(MapTrainer):
    """Learn a map between two sets of word vectors from a dictionary, as MUSE, VecMap and fastText do, and apply it.

    `train` maps the vectors in their memory. `save_model` writes those of both languages, the map, record and card.

    Attributes:
        maps: the learnt map by language.
        anchors: the word vectors by language, of length 1, and mapped after `train`.
        coverage: numbers of the dictionary's `entries` and `used` ones, by language.
        record: the content of `results.json`.

    Args:
        vectors: word vectors of a language with one layer and a `lang`, as [`~hf_xalign.mapping.read_word2vec`]
            returns them; they are changed.
        pivot_vectors: those of the pivot.
        args: settings; default: `MappingConfig()`. Those about text have no effect.
        dictionary: {language: [(word of the pivot, other word), ...]} to learn from. Entries in the other order are
            turned.
        test_dictionary: a dictionary to score lexicon induction on, of the same form. Default: entries of a fixed
            fifth of the dictionary's source words, which are not learnt from.
        vectors_format: of the files of mapped vectors.
        reporting: what a script adds to the record of the run.
        files: names of files in messages and record, by `("dictionary", "test_dictionary" or "vectors", language)`.

    Raises:
        InputError: vectors, dictionaries and settings do not fit each other.

    Example:
        >>> import tempfile
        >>> from hf_xalign.mapping import Anchors
        >>> german = Anchors(["haus", "hund", "baum"], torch.eye(3)[:, None], torch.ones(3), lang="de")
        >>> english = Anchors(["house", "dog", "tree"], torch.eye(3)[:, None], torch.ones(3), lang="en")
        >>> lexicon, test = {"de": [("house", "haus"), ("dog", "hund")]}, {"de": [("tree", "baum")]}
        >>> args = MappingConfig(tempfile.mkdtemp(), center=False, device="cpu")
        >>> trainer = VectorMappingTrainer(german, english, args, dictionary=lexicon, test_dictionary=test)
        >>> trainer.train()["de"].source_lang
        'de'
    """

    _usable = "has a vector"

    def __init__(
        self,
        vectors: Anchors,
        pivot_vectors: Anchors,
        args: MappingConfig | None = None,
        *,
        dictionary: Mapping[str, Entries],
        test_dictionary: Mapping[str, Entries] | None = None,
        vectors_format: VectorsFormat = "safetensors",
        reporting: Reporting | None = None,
        files: Mapping[tuple[str, str], str] | None = None,
    ):
        for side, given in (("vectors", vectors), ("pivot_vectors", pivot_vectors)):
            if not isinstance(given, Anchors) or given.lang is None or given.vectors.shape[1] != 1:
                raise InputError(f"{side}: give word vectors of one layer, and name their language by lang")
        if vectors.lang == pivot_vectors.lang:
            raise InputError(f"both word vectors are in {vectors.lang}. Give vectors of two languages.")
        super().__init__(
            # Rules between settings hold of what is learnt from.
            replace(args or MappingConfig(), supervision="dictionary"),
            [str(vectors.lang)],
            str(pivot_vectors.lang),
            dictionary=dictionary,
            test_dictionary=test_dictionary,
            protocols=read_protocols(["cosine"]),
            reporting=reporting,
            files=files,
        )
        self.base_model, self.vectors_format = "word vectors", vectors_format
        [self.language] = self.languages
        self.text = self.reporting.added_to({"license": "unknown"})
        for given in (vectors, pivot_vectors):
            # Every published method divides the vectors by their lengths first.
            unit(given.vectors, out=given.vectors)
            on_device = given.vectors.to(choose_device(self.args.device))
            self.anchors[str(given.lang)] = replace(given, vectors=on_device)
        self._dictionary_lines = self._check_dictionaries()
        self._hold_out()

    def _hold_out(self) -> None:
        """Take the entries of test words out of the dictionary; without a test dictionary, draw them from it."""
        learnt = self.dictionary[self.language]
        test = self.test_dictionary.get(self.language) or [entry for entry in learnt if _is_held_out(entry[1])]
        # A word may stand in another case than its vector's, and is then the same source word.
        source = self.anchors[self.language]
        tested = {*anchor_words([word for _, word in test], source)}
        words = anchor_words([word for _, word in learnt], source)
        kept = [entry for entry, word in zip(learnt, words) if word not in tested]
        if not kept or not test:
            raise InputError(
                f"dictionary: {len(kept)} entries are left to learn from and {len(test)} to test on. Use a larger "
                "dictionary, or another test_dictionary."
            )
        self.dictionary, self.test_dictionary = {self.language: kept}, {self.language: test}

    def _find_words(self, language: str) -> tuple[set[str], str]:
        anchors = self.anchors[language]
        count, _, size = anchors.vectors.shape
        file = self.files.get(("vectors", language))
        line = f"vectors  {language}: {count:,} words x {size} dimensions" + (f" of {file}" if file else "")
        return {lower_word(word, language) for word in anchors.words}, line

    def describe(self) -> list[str]:
        """Describe vectors and dictionaries, what is held out, and the map to learn, one line each."""
        learnt, test = self.dictionary[self.language], self.test_dictionary[self.language]
        words = len({word for _, word in test})
        held_out = f"held out {words:,} source words, {len(test):,} entries; {len(learnt):,} to learn from"
        return [*self._dictionary_lines, held_out, self._describe_map()]

    def train(self) -> dict[str, LanguageMap]:
        """Learn the map, apply it to the vectors, score lexicon induction, and return the map by language."""
        if self.maps:
            raise InputError("train was called before, and the vectors are mapped: make a new trainer of new vectors")
        if not self.record:
            self._start_record()
        with phase(self.record, "mapping"):
            self._learn_maps()
            self._map_vectors()
        with phase(self.record, "scoring"):
            self._score("after", None)
        return self.maps

    def _map_vectors(self) -> None:
        """Map the word vectors of both languages in their memory, where their size stays."""
        learnt = self.maps[self.language]
        if learnt.source.means and learnt.source.steps[0] != "unit":
            # It was learnt on vectors of length 1, and is for those of the file.
            steps = ("unit", *learnt.source.steps)
            learnt = self.maps[self.language] = replace(learnt, source=replace(learnt.source, steps=steps))
        sides = SIDES if self.args.direction == "to_pivot" else SIDES[::-1]
        for code, side in zip((self.language, self.pivot), sides):
            vectors = self.anchors[code].vectors
            if learnt.project(vectors[:1], side).shape[-1] == vectors.shape[-1]:
                for part in vectors.split(_ROWS):
                    part.copy_(learnt.project(part, side))
            else:
                vectors = torch.cat([learnt.project(part, side) for part in vectors.split(_ROWS)])
            self.anchors[code] = replace(self.anchors[code], vectors=vectors)

    def _save_more(self, folder: Path) -> dict[str, str]:
        for path in (folder / VECTORS).glob("*"):
            path.unlink()
        written = {}
        for code, anchors in self.anchors.items():
            file = inside(folder / VECTORS, f"{code}.{self.vectors_format}")
            cpu = replace(anchors, vectors=anchors.vectors.cpu())
            cpu.save(file) if self.vectors_format == "safetensors" else write_word2vec(cpu, file)
            written[code] = f"{VECTORS}/{file.name}"
        names = {code: self.files.get(("vectors", code), f"vectors of {code}") for code in self.anchors}
        self.record["maps"]["vectors"] = {"from": names, "files": written}
        return {"mapped vectors": str(folder / VECTORS)}


def _is_held_out(word: str) -> bool:
    """Return whether a source word is for testing. A hash decides, so that every run has the same split."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big") % HELD_OUT == 0
