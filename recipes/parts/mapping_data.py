"""Read what a run of maps learns from, text or word vectors and dictionaries, and make its trainer."""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset

from hf_xalign.config import non_default_fields
from hf_xalign.data.load import source_entry
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.readers import load_dictionary
from hf_xalign.data.sources import parse_named, parse_source
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language
from hf_xalign.mapping.anchors import Anchors
from hf_xalign.mapping.word2vec import read_word2vec
from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.recipes.parts.mapping_arguments import MappingArguments, MappingText
from hf_xalign.recipes.parts.parallel import read_linking, read_text
from hf_xalign.trainers.base.run import Reporting
from hf_xalign.trainers.mapping import Encoder, Entries, MappingTrainer, name_three, open_encoder
from hf_xalign.trainers.word_vectors import HELD_OUT, VECTORS, WordVectorTrainer

# `cc.de.300.vec.gz` and `wiki.de.vec`, the names of fastText's files.
_FASTTEXT = re.compile(r"(?:cc|wiki)\.([a-z]{2,3})\.")


@dataclass
class Lexicons:
    """Dictionaries and monolingual text by language, and the record's entries of their files by argument."""

    dictionary: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    test_dictionary: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    text: dict[str, list[str]] = field(default_factory=dict)
    entries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def read(cls, args: MappingArguments, revision: str | None = None) -> Lexicons:
        """Read the files that the arguments name; `revision` is that of texts from the Hub."""
        lexicons = cls(entries={"dictionary": [], "test_dictionary": [], "text": []})
        for name in ("dictionary", "test_dictionary"):
            for item in getattr(args, name):
                source, language = parse_named(item, name)
                entries = load_dictionary(Path(source).expanduser())
                if args.dictionary_order == "other_first":
                    entries = [(second, first) for first, second in entries]
                getattr(lexicons, name).setdefault(language, []).extend(entries)
                lexicons.entries[name].append(about(item, source, entries=len(entries)))
        for item in args.text:
            source, language = parse_named(item, "text")
            part = load_monolingual(source, revision=revision)
            lexicons.text.setdefault(language, []).extend(part["text"][:])
            lexicons.entries["text"].append(about(item, source, part, sentences=len(part)))
        return lexicons

    def files(self) -> dict[tuple[str, str], str]:
        """Return the dictionaries' files by argument and language."""
        files: dict[tuple[str, str], list[str]] = {}
        for name in ("dictionary", "test_dictionary"):
            for entry in self.entries[name]:
                files.setdefault((name, entry["language"]), []).append(entry["source"])
        return {key: ", ".join(sources) for key, sources in files.items()}


def load_mapping(data: MappingText, args: MappingArguments) -> MappingTrainer:
    """Read text, dictionaries and encoders, link the text, and return the trainer of the maps."""
    started = time.perf_counter()
    lexicons = Lexicons.read(args, data.dataset_revision)
    known: dict[str, Any] = {"dictionary": lexicons.dictionary, "test_dictionary": lexicons.test_dictionary}
    text = read_text(data, data.eval_links)
    names = [name or data.model_name_or_path for name in (args.source_model, args.target_model)]
    source = _open(data, args, names[0])
    pivot = source if names[0] == names[1] else _open(data, args, names[1])
    linking = read_linking(data, args, text.sources)
    unused = "dictionary" if args.supervision == "parallel" else None
    used = {name: entries for name, entries in lexicons.entries.items() if entries and name != unused}
    trainer = MappingTrainer(
        source[0],
        args,
        train_dataset=text.train,
        eval_dataset=text.evaluation,
        processing_class=source[1],
        pivot_model=None if pivot is source else pivot[0],
        pivot_processing_class=None if pivot is source else pivot[1],
        text=lexicons.text,
        linking=linking,
        name=names[0],
        protocols=text.protocols,
        reporting=Reporting(
            settings=non_default_fields(data),
            text={"data": text.sources | used},
            seconds={"loading": round(time.perf_counter() - started, 3)},
            show=partial(print, flush=True),
        ),
        files=lexicons.files(),
        **known,
    )
    print("\n".join(trainer.describe()))
    return trainer


def _open(data: DataArguments, args: MappingArguments, name: str) -> Encoder:
    return open_encoder(name, None, args, data.model_revision if name == data.model_name_or_path else None)


def load_word_vectors(data: MappingText, args: MappingArguments) -> WordVectorTrainer:
    """Read word vectors and dictionaries, and return the trainer of their map."""
    started = time.perf_counter()
    files = _files(data, args)
    folder = (Path(args.output_dir) / VECTORS).resolve()
    for file in files.values():
        if Path(file).expanduser().resolve().is_relative_to(folder):
            raise InputError(f"{file}: lies where this run writes mapped vectors. Use another output_dir.")
    source, target = (
        read_word2vec(Path(file).expanduser(), language, limit=args.max_vectors) for language, file in files.items()
    )
    dictionary, test_dictionary, lines, entries = _read_lexicon(source, target, args)
    entries["vectors"] = [
        about(file, file, language=anchors.lang, words=len(anchors))
        for file, anchors in zip(files.values(), (source, target))
    ]
    names = {language: Path(file).name for language, file in files.items()}
    trainer = WordVectorTrainer(
        source,
        target,
        args,
        dictionary=dictionary,
        test_dictionary=test_dictionary,
        name=names[str(source.lang)],
        reporting=Reporting(
            settings=non_default_fields(data),
            text={"data": entries},
            seconds={"reading": round(time.perf_counter() - started, 3)},
            show=print,
        ),
        files={("vectors", language): name for language, name in names.items()},
    )
    for language, anchors in trainer.anchors.items():
        words, _, size = anchors.vectors.shape
        print(f"vectors  {language}: {words:,} words x {size} dimensions of {files[language]}")
    [train], [test] = trainer.dictionary.values(), trainer.test_dictionary.values()
    held_out = len({word for _, word in test})
    lines.append(f"held out {held_out:,} source words, {len(test):,} entries; {len(train):,} to learn from")
    print("\n".join([*lines, f"map      {args.method}, {args.direction.replace('_', ' ')}"]))
    return trainer


def _files(data: DataArguments, args: MappingArguments) -> dict[str, str]:
    """Return the files of word vectors by language, the pivot's last."""
    assert args.source_vectors and args.target_vectors
    files = {}
    for name, item, default in (
        ("source_vectors", args.source_vectors, None),
        ("target_vectors", args.target_vectors, data.target_lang),
    ):
        file, language = parse_source(item)
        match = _FASTTEXT.match(Path(file).name)
        language = language or (match[1] if match else default) or parse_named(item, name)[1]
        language = check_language(language, name)
        if language in files:
            raise InputError(
                f"{name}={item}: both files are of {language}. Write the language in front, as in de={item}."
            )
        files[language] = file
    return files


def _read_lexicon(
    source: Anchors, target: Anchors, args: MappingArguments
) -> tuple[Entries, Entries, list[str], dict[str, list[dict[str, Any]]]]:
    """Read the dictionaries. Which column is the source's is seen from the words.

    Returns entries to learn from and to test on, a description of them, and the record's entries of their files.
    """
    lines: list[str] = []
    entries: dict[str, list[tuple[str, str]]] = {"dictionary": [], "test_dictionary": []}
    source_entries: dict[str, list[dict[str, Any]]] = {name: [] for name in entries}
    for name, what in (("dictionary", "learn"), ("test_dictionary", "test")):
        for item in getattr(args, name):
            file, language = parse_source(item)
            if language not in (None, source.lang):
                raise InputError(
                    f"{name}={item}: the source vectors are of {source.lang}. Name a dictionary of {source.lang}."
                )
            pairs = load_dictionary(Path(file).expanduser())
            found = [
                (source.lookup(a) >= 0) & (target.lookup(b) >= 0)
                for a, b in (list(zip(*pairs)), list(zip(*pairs))[::-1])
            ]
            if not any(usable := [int(both.sum()) for both in found]):
                raise InputError(
                    f"{name} {file}: no entry of {len(pairs)} has a vector in {source.lang} and in {target.lang}. "
                    "Use a dictionary of these languages, or raise max_vectors."
                )
            first = source.lang if usable[0] >= usable[1] else target.lang
            entries[name] += pairs if first == target.lang else [(b, a) for a, b in pairs]
            source_entries[name].append(about(item, file, language=source.lang, entries=len(pairs)))
            without = [pair for pair, both in zip(pairs, found[usable[0] < usable[1]].tolist()) if not both]
            counts = f"{len(pairs):,} entries, {max(usable):,} with both vectors{name_three(without)}"
            lines.append(f"{what:8} {file}: {counts}, {first} first")
    if not args.test_dictionary:
        split = {"split": f"1 of {HELD_OUT} source words"}
        source_entries["test_dictionary"] = [entry | split for entry in source_entries["dictionary"]]
    return entries["dictionary"], entries["test_dictionary"], lines, source_entries


def about(item: str, source: str, text: Dataset | None = None, **more: Any) -> dict[str, Any]:
    """Return the entry of `results.json` for a file (with a hash of its content) or for a Hub dataset."""
    path = Path(source).expanduser()
    fingerprint = None if text is None else text._fingerprint
    if path.is_file():
        with path.open("rb") as file:
            fingerprint = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return source_entry(item, text, fingerprint=fingerprint, **more)
