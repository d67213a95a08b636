"""Read what a run of maps learns from, text or word vectors and dictionaries, and make its trainer."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from datasets import Dataset

from hf_xalign.cache import checksum
from hf_xalign.data import forms
from hf_xalign.data.load import Entry, source_entry
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.readers.dictionaries import load_dictionary
from hf_xalign.data.sources import parse_named, parse_source
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language
from hf_xalign.mapping.word2vec import read_word2vec
from hf_xalign.recipes.parts.arguments import DataArguments, MappingArguments
from hf_xalign.recipes.parts.parallel import read_linking, read_text
from hf_xalign.recipes.parts.run import reporting
from hf_xalign.trainers.mapping.trainer import MappingTrainer
from hf_xalign.trainers.mapping.vectors import HELD_OUT, VECTORS, VectorMappingTrainer

# `cc.de.300.vec.gz` and `wiki.de.vec`, the names of fastText's files.
_FASTTEXT = re.compile(r"(?:cc|wiki)\.([a-z]{2,3})\.")


def load_mapping(data: DataArguments, args: MappingArguments) -> MappingTrainer:
    """Read text and dictionaries of a run, and return the trainer of its maps."""
    started = time.perf_counter()
    lexicons, files, entries = _read_dictionaries(args, data.target_lang)
    text = read_text(data, data.eval_links)
    linking = read_linking(data, args)
    more: dict[str, list[str]] = {}
    for item in args.text:
        name, language = parse_named(item, "text")
        part = load_monolingual(name, lang=language, revision=data.dataset_revision)
        more.setdefault(language, []).extend(part["text"][:])
        entries.setdefault("text", []).append(about(item, name, part, sentences=len(part)))
    unused = "dictionary" if args.supervision == "parallel" else None
    entries = {name: found for name, found in entries.items() if found and name != unused}
    own, of_pivot = (name or data.model_name_or_path for name in (args.source_model, args.target_model))
    seconds = round(time.perf_counter() - started, 3)
    return MappingTrainer(
        own,
        args,
        train_dataset=text.train,
        eval_dataset=text.evaluation,
        pivot_model=None if of_pivot == own else of_pivot,
        **lexicons,
        text=more,
        linking=linking,
        revision=data.model_revision,
        protocols=text.protocols,
        reporting=reporting(data, {"data": entries}, {"loading": seconds}),
        files=files,
    )


def load_vectors(data: DataArguments, args: MappingArguments) -> VectorMappingTrainer:
    """Read word vectors and dictionaries of a run, and return the trainer of its map."""
    started = time.perf_counter()
    sources = _vector_files(data, args)
    lexicons, files, entries = _read_dictionaries(args, data.target_lang, next(iter(sources)))
    anchors, entries["vectors"] = [], []
    for language, file in sources.items():
        anchors.append(read_word2vec(Path(file).expanduser(), language, limit=args.max_vectors))
        entries["vectors"].append(about(file, file, language=language, words=len(anchors[-1])))
        files["vectors", language] = Path(file).name
    if not args.test_dictionary:
        split = {"split": f"1 of {HELD_OUT} source words"}
        entries["test_dictionary"] = [entry | split for entry in entries["dictionary"]]
    seconds = round(time.perf_counter() - started, 3)
    return VectorMappingTrainer(
        anchors[0],
        anchors[1],
        args,
        **lexicons,
        vectors_format=args.vectors_format,
        reporting=reporting(data, {"data": entries}, {"reading": seconds}),
        files=files,
    )


def _read_dictionaries(
    args: MappingArguments, pivot: str, language: str | None = None
) -> tuple[dict[str, Any], dict[tuple[str, str], str], dict[str, list[Entry]]]:
    """Return the dictionaries by option and language, their files, and the record's entries of these by option.

    `language` is that of files without a prefix, if it is known.
    """
    lexicons: dict[str, Any] = {"dictionary": {}, "test_dictionary": {}}
    files: dict[tuple[str, str], str] = {}
    entries: dict[str, list[Entry]] = {name: [] for name in lexicons}
    for name, lexicon in lexicons.items():
        for item in getattr(args, name):
            file, code = parse_source(item)
            code = check_language(code or language or parse_named(item, name)[1], name)
            pairs = load_dictionary(Path(file).expanduser(), code, pivot)
            lexicon.setdefault(code, []).extend(pairs)
            files[name, code] = f"{files[name, code]}, {item}" if (name, code) in files else item
            entries[name].append(about(item, file, language=code, entries=len(pairs)))
    return lexicons, files, entries


def _vector_files(data: DataArguments, args: MappingArguments) -> dict[str, str]:
    """Return the files of word vectors by language, the pivot's last."""
    files: dict[str, str] = {}
    folder = (Path(args.output_dir) / VECTORS).resolve()
    for name, default in (("source_vectors", None), ("target_vectors", data.target_lang)):
        item = getattr(args, name)
        file, language = parse_source(item)
        match = _FASTTEXT.match(Path(file).name)
        language = check_language(language or (match[1] if match else default) or parse_named(item, name)[1], name)
        forms.warn_of_name(Path(file).name, language)
        if language in files:
            raise InputError(f"{name}={item}: both files are of {language}. Write the language in front: de=FILE.")
        if Path(file).expanduser().resolve().is_relative_to(folder):
            raise InputError(f"{file}: lies where this run writes mapped vectors. Use another output_dir.")
        files[language] = file
    return files


def about(item: str, source: str, text: Dataset | None = None, **more: object) -> Entry:
    """Return the entry of `results.json` for a file (with a hash of its content) or for a Hub dataset."""
    path = Path(source).expanduser()
    fingerprint = checksum(path, "blake2b") if path.is_file() else None if text is None else text._fingerprint
    return source_entry(item, text, fingerprint=fingerprint, **more)
