"""What maps are learnt from and scored on: linked words, anchors, dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import hf_xalign
from hf_xalign.data.dictionary import load_dictionary
from hf_xalign.data.embedded import resolve_model
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.parallel import parse_source
from hf_xalign.errors import InputError
from hf_xalign.evaluation.lexicon import lexicon_induction
from hf_xalign.evaluation.retrieval import word_retrieval
from hf_xalign.mapping.anchors import Anchors, make_anchors
from hf_xalign.mapping.maps import LanguageMap
from hf_xalign.mapping.procrustes import least_squares, procrustes
from hf_xalign.mapping.rcsls import rcsls
from hf_xalign.mapping.refinement import refine
from hf_xalign.mapping.self_learning import self_learning
from hf_xalign.mapping.supervision import Coverage, Matched, dictionary_vectors, linked_vectors
from hf_xalign.mapping.vecmap import vecmap
from hf_xalign.recipes.common import DataArguments
from hf_xalign.recipes.mapping_arguments import MappingArguments
from hf_xalign.recipes.text import LinkedText

Entries = list[tuple[str, str]]
"""(pivot's word, other word) pairs."""

Scores = dict[str, dict[str, float]]

# Precisions and their intervals, of what `lexicon_induction` returns.
_PRECISIONS = ("p@1", "p@5", "p@10", "p@1_oov_wrong", "p@5_oov_wrong")


@dataclass
class Material:
    """The encoder's vectors of a run's text.

    Attributes:
        model: the encoder, with its adapters if it has any.
        tokenizer: its fast tokenizer.
        pivot: the pivot language.
        training: linked words of the training text, by language; empty where dictionaries are the supervision.
        held_out: linked words of the held-out text, by language.
        anchors: by language, the pivot's too; empty without dictionaries.
        dictionaries: training entries by language.
        test_dictionaries: test entries by language.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pivot: str
    training: dict[str, Matched]
    held_out: dict[str, Matched]
    anchors: dict[str, Anchors]
    dictionaries: dict[str, Entries]
    test_dictionaries: dict[str, Entries]


def load_any_encoder(data: DataArguments, args: MappingArguments) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """An encoder, or an adapter (MAO's, say) on its encoder, on the run's device.

    Raises:
        InputError: there is none of that name, or it cannot be read.
    """
    model = cast(Any, hf_xalign.load(data.model_name_or_path, revision=data.model_revision, dtype=torch.float32))
    path = resolve_model(data.model_name_or_path)
    tokenizer = AutoTokenizer.from_pretrained(path, revision=data.model_revision)
    device = args.device or str(torch.accelerator.current_accelerator() or "cpu")
    cast(nn.Module, model).to(device).eval()
    return model, tokenizer


def read_dictionaries(items: Sequence[str], field: str) -> dict[str, Entries]:
    """The dictionaries of `LANG=FILE` items, by language.

    Raises:
        InputError: an item without language, or a file that cannot be read.
    """
    found: dict[str, Entries] = {}
    for item in items:
        source, language = parse_source(item)
        if language is None:
            raise InputError(f"{field}={item}: say the language of the other side, as in de={item}")
        found.setdefault(language, []).extend(load_dictionary(source))
    return found


def load_texts(items: Sequence[str]) -> dict[str, list[Dataset]]:
    """The monolingual text of `LANG=SOURCE` items, by language.

    Raises:
        InputError: an item without language, or text that cannot be read.
    """
    found: dict[str, list[Dataset]] = {}
    for item in items:
        source, language = parse_source(item)
        if language is None:
            raise InputError(f"text={item}: say its language, as in de={item}")
        found.setdefault(language, []).append(load_monolingual(source))
    return found


def gather(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    linked: LinkedText,
    data: DataArguments,
    args: MappingArguments,
) -> Material:
    """Run the encoder over everything that the maps are learnt from and scored on.

    Raises:
        InputError: a language that one of the sources lacks, or text that nothing can be learnt from.
    """
    pivot = data.target_lang
    languages = sorted(set(linked.train.unique("source_lang")))
    dictionaries = read_dictionaries(args.dictionary, "dictionary")
    tests = read_dictionaries(args.test_dictionary, "test_dictionary")
    texts = load_texts(args.text)
    if args.supervision == "dictionary" and (missing := sorted(set(languages) - set(dictionaries))):
        raise InputError(f"dictionary: none for {', '.join(missing)}, which train_data has; name one as {missing[0]}=")
    if args.direction == "from_pivot" and len(languages) > 1:
        raise InputError(
            f"direction=from_pivot maps {pivot} into the space of one language, and train_data has "
            f"{', '.join(languages)}: choose one"
        )
    options: dict[str, Any] = {
        "layers": args.layers,
        "pooling": args.pooling,
        "batch_size": args.batch_size,
    }
    training, held_out = {}, {}
    for language in languages:
        own = _of(linked.evaluation, language)
        held_out[language] = linked_vectors(model, tokenizer, own, desc=f"Held-out words, {language}", **options)
        if args.supervision == "parallel":
            own = _of(linked.train, language)
            training[language] = linked_vectors(model, tokenizer, own, desc=f"Linked words, {language}", **options)
    anchors = {}
    if dictionaries or tests:
        for language in [*languages, pivot]:
            rows = linked.train["target"] if language == pivot else _of(linked.train, language)["source"]
            parts = [part["text"][:] for part in texts.get(language, [])]
            anchors[language] = make_anchors(
                model,
                tokenizer,
                list(chain(*parts, rows[:])),
                lang=language,
                max_words=args.max_words,
                sentences_per_word=args.sentences_per_word,
                **options,
            )
    return Material(model, tokenizer, pivot, training, held_out, anchors, dictionaries, tests)


def learn(material: Material, language: str, args: MappingArguments) -> tuple[LanguageMap, Coverage | None]:
    """Learn the map of one language by the settings.

    Returns:
        The map, from the language to the pivot or the other way round as the settings say, and what of the training
        dictionary it was learnt from.

    Raises:
        InputError: what the method refuses.
    """
    coverage = None
    if args.supervision == "dictionary":
        anchors, pivot = material.anchors[language], material.anchors[material.pivot]
        entries = [(other, word) for word, other in material.dictionaries[language]]
        pairs, coverage = dictionary_vectors(entries, anchors, pivot)
        sides = [(pairs.source, anchors.vectors, language), (pairs.target, pivot.vectors, material.pivot)]
    else:
        pairs = material.training[language]
        sides = [(pairs.source, pairs.source, language), (pairs.target, pairs.target, material.pivot)]
    if args.direction == "from_pivot":
        sides.reverse()
    (source, all_source, source_lang), (target, all_target, target_lang) = sides
    layers = tuple(args.layers)
    candidates: dict[str, Any] = {"source_candidates": all_source, "target_candidates": all_target}
    if args.method == "procrustes":
        found = procrustes(source, target, centre=args.centre, layers=layers)
        if args.refine:
            found = refine(all_source[:, 0], all_target[:, 0], found, iterations=args.refine)
    elif args.method == "least_squares":
        found = least_squares(source, target, centre=args.centre, layers=layers)
    elif args.method == "rcsls":
        found = rcsls(
            source,
            target,
            epochs=args.rcsls_epochs,
            learning_rate=args.rcsls_learning_rate,
            spectral=args.spectral,
            steps=("unit", "centre", "unit") if args.centre else ("unit",),
            layers=layers,
            **candidates,
        )
    elif args.method == "vecmap":
        found = vecmap(source, target, whiten=args.whiten, layers=layers, **candidates)
    else:
        rows = [anchors.lookup(pairs.source_words), pivot.lookup(pairs.target_words)]
        seeds = torch.stack(rows if args.direction == "to_pivot" else rows[::-1], dim=1)
        found = self_learning(
            all_source[:, 0], all_target[:, 0], seeds, whiten=args.whiten, seed=args.seed, layers=layers
        )
    return LanguageMap(found.source, found.target, found.method, layers, source_lang, target_lang), coverage


def score(
    material: Material, args: MappingArguments, maps: Mapping[str, LanguageMap] | None = None
) -> tuple[Scores, dict[str, dict[str, list[float]]]]:
    """Word retrieval and lexicon induction for each language, on the layers of the maps, mapped or not.

    Returns:
        `{language: {metric: value}}`: `retrieval_<pooling>` with its directions, types and pool, as of
        [`~hf_xalign.evaluation.score_retrieval`]; `bli_p@K` (mean of both directions), `bli_p@K_to_pivot`,
        `bli_p@K_from_pivot`, and the share `bli_coverage` of entries; with several layers each name ends in `, layer
        n`. And the 95% intervals of the `_to_pivot` and `_from_pivot` precisions, `{language: {metric: [low, high]}}`.
    """
    scores: Scores = {}
    intervals: dict[str, dict[str, list[float]]] = {}
    for language, words in material.held_out.items():
        scores[language], intervals[language] = {}, {}
        whole = None if maps is None else maps[language]
        for k, layer in enumerate(args.layers):
            one = None if whole is None else whole.of([layer])
            if one is not None and args.direction == "from_pivot":
                one = one.inverse()
            found = _retrieval(words, k, one, f"retrieval_{args.pooling}")
            bounds: dict[str, list[float]] = {}
            if language in material.test_dictionaries:
                induced, bounds = _induction(material, language, k, one, args.seed)
                found |= induced
            end = f", layer {layer}" if len(args.layers) > 1 else ""
            scores[language] |= {name + end: value for name, value in found.items()}
            intervals[language] |= {name + end: value for name, value in bounds.items()}
    return scores, intervals


def _retrieval(words: Matched, layer: int, one: LanguageMap | None, name: str) -> dict[str, float]:
    source, target = _mapped(words.source[:, layer], words.target[:, layer], one)
    rows = torch.arange(len(source)).unsqueeze(1).expand(-1, 2)
    found = word_retrieval(source, target, rows, source_words=words.source_words, target_words=words.target_words)
    return {
        name: found["mean"],
        f"{name}_to_pivot": found["source_to_target"],
        f"{name}_from_pivot": found["target_to_source"],
        f"{name}_types": found["type_mean"],
        "pool": (found["source_pool"] + found["target_pool"]) / 2,
    }


def _induction(
    material: Material, language: str, layer: int, one: LanguageMap | None, seed: int
) -> tuple[dict[str, float], dict[str, list[float]]]:
    own, pivot = material.anchors[language], material.anchors[material.pivot]
    source, target = _mapped(own.vectors[:, layer], pivot.vectors[:, layer], one)
    entries = [(other, word) for word, other in material.test_dictionaries[language]]
    to_pivot = lexicon_induction(source, target, own.words, pivot.words, entries, seed=seed)
    entries = [(word, other) for other, word in entries]
    from_pivot = lexicon_induction(target, source, pivot.words, own.words, entries, seed=seed)
    scores: dict[str, float] = {}
    bounds: dict[str, list[float]] = {}
    for name in _PRECISIONS:
        scores[f"bli_{name}"] = (to_pivot[name] + from_pivot[name]) / 2
        for end, found in (("_to_pivot", to_pivot), ("_from_pivot", from_pivot)):
            scores[f"bli_{name}{end}"] = found[name]
            bounds[f"bli_{name}{end}"] = [found[f"{name}_low"], found[f"{name}_high"]]
    scores["bli_coverage"] = to_pivot["coverage"]
    scores["pool_bli"] = (to_pivot["source_vocabulary"] + to_pivot["target_vocabulary"]) / 2
    return scores, bounds


def _mapped(source: Tensor, target: Tensor, one: LanguageMap | None) -> tuple[Tensor, Tensor]:
    return (source, target) if one is None else (one.project(source), one.project(target, "target"))


def _of(dataset: Dataset, language: str) -> Dataset:
    rows = np.flatnonzero(np.asarray(dataset["source_lang"][:]) == language)
    if not len(rows):
        raise InputError(f"eval_data has no pairs in {language}, which train_data has: name some")
    return dataset.select(rows)
