"""Learn a map between two files of word vectors, as MUSE, VecMap and fastText do; no encoder and no text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hf_xalign.cache import inside
from hf_xalign.config import non_default_fields
from hf_xalign.data.readers import load_dictionary
from hf_xalign.data.sources import parse_named, parse_source
from hf_xalign.errors import InputError, explained
from hf_xalign.evaluation.scores import read_protocols
from hf_xalign.language_codes import check_language
from hf_xalign.mapping.anchors import Anchors
from hf_xalign.mapping.supervision import Coverage
from hf_xalign.mapping.word2vec import read_word2vec, write_word2vec
from hf_xalign.modeling.loading import choose_device
from hf_xalign.modeling.maps import LanguageMap, unit
from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.recipes.parts.mapping.arguments import MappingArguments, MappingText
from hf_xalign.recipes.parts.mapping.data import MappingData, induction, learn
from hf_xalign.recipes.parts.mapping.report import finish_mapping, save_maps, start
from hf_xalign.recipes.parts.mapping.sources import Entries, Sources, about
from hf_xalign.record import phase

VECTORS = "vectors"

# The settings that such a run reads. Every other one is about an encoder or about text.
READ = {
    *("source_vectors", "target_vectors", "max_vectors", "vectors_format", "dictionary", "test_dictionary"),
    *("method", "center", "whiten", "spectral", "rcsls_epochs", "rcsls_learning_rate", "refine", "direction"),
    *("supervision", "target_lang", "output_dir", "overwrite_output_dir", "dry_run", "device", "seed"),
}

# `cc.de.300.vec.gz` and `wiki.de.vec`, the names of fastText's files.
_FASTTEXT = re.compile(r"(?:cc|wiki)\.([a-z]{2,3})\.")
# Rows copied at a time.
_ROWS = 4096
# Without a test dictionary, one source word in so many is held out.
_HELD_OUT = 5


def map_vectors(data: MappingText, args: MappingArguments) -> None:
    """Read the vectors, learn the map, score it, and write the mapped vectors, the map, record and card."""
    strange = sorted({*non_default_fields(data), *non_default_fields(args)} - READ)
    if strange:
        raise InputError(f"{strange[0]}: a run on word vectors (source_vectors) does not read it. Remove it.")
    folder = Path(args.output_dir)
    files = _files(data, args)
    source_lang, target_lang = files
    for file in files.values():
        if Path(file).expanduser().resolve().is_relative_to((folder / VECTORS).resolve()):
            raise InputError(f"{file}: lies where this run writes mapped vectors. Use another output_dir.")
    device = choose_device(args.device)
    about_text: dict[str, Any] = {"languages": [source_lang], "pivot": target_lang, "license": "unknown"}
    record = start(data, args, device.type, Path(files[source_lang]).name, **about_text)
    record["base_model"]["hub_id"] = None
    with phase(record, "reading"):
        anchors = {language: _read(file, language, args.max_vectors, device) for language, file in files.items()}
        train, test, lines, read = _read_lexicon(anchors[source_lang], anchors[target_lang], args)
    record["data"] |= read
    record["data"]["vectors"] = [
        about(file, file, language=language, words=len(anchors[language])) for language, file in files.items()
    ]
    for language, own_anchors in anchors.items():
        words, _, size = own_anchors.vectors.shape
        print(f"vectors  {language}: {words:,} words x {size} dimensions of {files[language]}")
    print("\n".join(lines))
    print(f"map      {args.method}, {args.direction.replace('_', ' ')}")
    if data.dry_run:
        print("dry run: nothing was learnt or saved")
        return
    corpus = MappingData(target_lang, {}, {}, anchors, Sources({source_lang: train}, {source_lang: test}, {}, {}))
    with phase(record, "mapping"):
        with explained(f"the map of {source_lang}"):
            learned, coverage = learn(corpus, source_lang, args)
        learned = _of_any_length(learned)
        sides = ("source", "target") if args.direction == "to_pivot" else ("target", "source")
        for language, side in zip(files, sides):
            anchors[language] = replace(anchors[language], vectors=_mapped(anchors[language].vectors, learned, side))
    with phase(record, "scoring"):
        scores, bounds = induction(corpus, source_lang, 0, lambda a, b: (a, b), args.seed, read_protocols(["cosine"]))
        print(f"scored   {scores['bli_coverage']:.1%} of the test entries, those with both vectors")
        record["scores"]["after"] = {source_lang: scores}
        record["intervals"] = {"before": {}, "after": {source_lang: bounds}}
    with phase(record, "writing"):
        saved = _save(record, anchors, learned, coverage, files, args, folder)
    finish_mapping(record, folder, saved)


def _files(data: DataArguments, args: MappingArguments) -> dict[str, str]:
    assert args.source_vectors and args.target_vectors
    files = {}
    for name, item, default in (
        ("source_vectors", args.source_vectors, None),
        ("target_vectors", args.target_vectors, data.target_lang),
    ):
        file, language = parse_source(item)
        match = _FASTTEXT.match(Path(file).name)
        language = language or (match[1] if match else default) or parse_named(item, name)[1]
        check_language(language, name)
        if language in files:
            raise InputError(
                f"{name}={item}: both files are of {language}. Write the language in front, as in de={item}."
            )
        files[language] = file
    return files


def _read(file: str, language: str, limit: int, device: torch.device) -> Anchors:
    """Read vectors and divide each by its length, as every published method does."""
    anchors = read_word2vec(Path(file).expanduser(), language, limit=limit)
    unit(anchors.vectors, out=anchors.vectors)
    return replace(anchors, vectors=anchors.vectors.to(device))


def _read_lexicon(
    source: Anchors, target: Anchors, args: MappingArguments
) -> tuple[Entries, Entries, list[str], dict[str, list[dict[str, Any]]]]:
    """Read the dictionaries; without a test dictionary, hold out a fixed part of the source words.

    Which column is the source's is seen from the words. A source word of the test dictionary is not learnt from.

    Returns entries to learn from and to test on, a description of them, and the record's entries of their files.
    """
    lines: list[str] = []
    entries: dict[str, Entries] = {}
    source_entries: dict[str, list[dict[str, Any]]] = {}
    for name in ("dictionary", "test_dictionary"):
        entries[name], source_entries[name] = [], []
        for item in getattr(args, name):
            file, language = parse_source(item)
            if language not in (None, source.lang):
                raise InputError(
                    f"{name}={item}: the source vectors are of {source.lang}. Name a dictionary of {source.lang}."
                )
            pairs = load_dictionary(Path(file).expanduser())
            usable = [
                int(((source.lookup(a) >= 0) & (target.lookup(b) >= 0)).sum())
                for a, b in (list(zip(*pairs)), list(zip(*pairs))[::-1])
            ]
            if not any(usable):
                raise InputError(
                    f"{name} {file}: no entry of {len(pairs)} has a vector in {source.lang} and in {target.lang}. "
                    "Use a dictionary of these languages, or raise max_vectors."
                )
            first = source.lang if usable[0] >= usable[1] else target.lang
            entries[name] += pairs if first == target.lang else [(b, a) for a, b in pairs]
            source_entries[name].append(about(item, file, language=source.lang, entries=len(pairs)))
            what = "learn" if name == "dictionary" else "test"
            counts = f"{len(pairs):,} entries, {max(usable):,} with both vectors"
            lines.append(f"{what:8} {file}: {counts}, {first} first")
    train, test = entries["dictionary"], entries["test_dictionary"]
    if test:
        held_out = {word for _, word in test}  # of which nothing is learnt
    else:
        held_out = {word for _, word in train if _is_held_out(word)}
        test = [entry for entry in train if entry[1] in held_out]
        source_entries["test_dictionary"] = [
            {**entry, "split": f"1 of {_HELD_OUT} source words"} for entry in source_entries["dictionary"]
        ]
    kept = [entry for entry in train if entry[1] not in held_out]
    if not kept or not test:
        raise InputError(
            f"dictionary: {len(kept)} entries are left to learn from and {len(test)} to test on. Use a larger "
            "dictionary, or another test_dictionary."
        )
    lines.append(f"held out {len(held_out):,} source words, {len(test):,} entries; {len(kept):,} to learn from")
    return kept, test, lines, source_entries


def _is_held_out(word: str) -> bool:
    """Return whether a source word is for testing. A hash decides, so that every run has the same split."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big") % _HELD_OUT == 0


def _of_any_length(language_map: LanguageMap) -> LanguageMap:
    """Return a map learnt on vectors of length 1 for vectors as they are in the file."""
    if not language_map.source.means or language_map.source.steps[0] == "unit":
        return language_map
    return replace(language_map, source=replace(language_map.source, steps=("unit", *language_map.source.steps)))


def _mapped(vectors: Tensor, language_map: LanguageMap, side: Any) -> Tensor:
    """Map vectors, in their own memory where the size stays."""
    if language_map.project(vectors[:1], side).shape[-1] != vectors.shape[-1]:
        return torch.cat([language_map.project(part, side) for part in vectors.split(_ROWS)])
    for part in vectors.split(_ROWS):
        part.copy_(language_map.project(part, side))
    return vectors


def _save(
    record: dict[str, Any],
    anchors: Mapping[str, Anchors],
    language_map: LanguageMap,
    coverage: Coverage | None,
    files: Mapping[str, str],
    args: MappingArguments,
    folder: Path,
) -> dict[str, str]:
    """Replace an earlier run by the map and the mapped vectors, and return their folders by name."""
    language = next(iter(files))
    saved = save_maps(record, {language: language_map}, {language: coverage}, folder)  # the old record goes first
    for path in (folder / VECTORS).glob("*"):
        path.unlink()
    written = {}
    for code, own_anchors in anchors.items():
        file = inside(folder / VECTORS, f"{code}.{args.vectors_format}")
        cpu = replace(own_anchors, vectors=own_anchors.vectors.cpu())
        cpu.save(file) if args.vectors_format == "safetensors" else write_word2vec(cpu, file)
        written[code] = f"{VECTORS}/{file.name}"
    record["maps"]["vectors"] = {"from": {code: Path(file).name for code, file in files.items()}, "files": written}
    return {"mapped vectors": str(folder / VECTORS), **saved}
