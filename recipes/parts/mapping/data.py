"""Vectors of linked words and anchors: extract them, learn maps from them and score the maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import hf_xalign
from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.data.encoding import word_tokenizer
from hf_xalign.errors import InputError
from hf_xalign.evaluation.lexicon import lexicon_induction
from hf_xalign.evaluation.scores import Examples, HeldOutWords, Protocol, Scores, held_out_words
from hf_xalign.mapping.anchors import Anchors, make_anchors
from hf_xalign.mapping.procrustes import least_squares, procrustes, refine
from hf_xalign.mapping.rcsls import rcsls
from hf_xalign.mapping.self_learning import self_learning
from hf_xalign.mapping.supervision import Coverage, Matched, dictionary_vectors, linked_vectors
from hf_xalign.mapping.vecmap import vecmap
from hf_xalign.modeling.loading import choose_device, load_tokenizer
from hf_xalign.modeling.maps import LanguageMap
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.recipes.parts.mapping.arguments import MappingArguments
from hf_xalign.recipes.parts.mapping.sources import Sources, pairs_of
from hf_xalign.recipes.parts.parallel import Corpus

# Encoder and tokenizer of each side; the pivot is the target.
Encoders = dict[str, tuple[PreTrainedModel, PreTrainedTokenizerBase]]
# Maps vectors of a language and of the pivot to the space in which they are compared.
Projection = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

# Precisions that `lexicon_induction` returns with intervals.
_PRECISIONS = ("p@1", "p@5", "p@10", "p@1_oov_wrong", "p@5_oov_wrong")


@dataclass
class MappingData:
    """Linked words and anchors (also of the pivot) of a run's text, by language."""

    pivot: str
    training: dict[str, Matched]
    held_out: dict[str, HeldOutWords]
    anchors: dict[str, Anchors]
    sources: Sources
    protocols: Sequence[Protocol] = (Protocol(),)


def load_encoders(data: DataArguments, args: MappingArguments) -> Encoders:
    """Load the encoder of each side, once if both have the same."""
    names = [name or data.model_name_or_path for name in (args.source_model, args.target_model)]
    source = load_any_encoder(data, args, names[0])
    return dict(zip(SIDES, (source, source if names[0] == names[1] else load_any_encoder(data, args, names[1]))))


def load_any_encoder(
    data: DataArguments, args: MappingArguments, name: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder, with its adapter if the name is an adapter's; of a task model, take the encoder."""
    device = choose_device(args.device)
    revision = data.model_revision if name == data.model_name_or_path else None
    model = cast(Any, hf_xalign.load(name, revision=revision, dtype=torch.float32))
    inner: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    if backbone_of(inner) is not inner:
        if any(isinstance(module, BaseTunerLayer) for module in model.modules()):
            raise InputError(
                f"model_name_or_path={name} has a task head and an adapter. Name the encoder or the adapter."
            )
        model = backbone_of(inner)
    layer_index(args.layers, model.config.num_hidden_layers)  # raises for an unknown layer
    tokenizer = load_tokenizer(name, revision=revision)
    word_tokenizer(tokenizer)  # raises for a slow one
    return model.to(device).eval(), tokenizer


def extract_vectors(
    linked: Corpus, encoders: Encoders, sources: Sources, data: DataArguments, args: MappingArguments
) -> MappingData:
    """Run the encoders over all text that maps are learnt from and scored on."""
    pivot = data.target_lang
    options: dict[str, Any] = {"layers": args.layers, "pooling": args.pooling, "batch_size": args.batch_size}
    training, held_out = {}, {}
    for language in linked.languages:
        language_pairs = pairs_of(linked.evaluation, language)
        label = f"Held-out words, {language}"
        held_out[language] = held_out_words(encoders, language_pairs, linked.protocols, desc=label, **options)
        if args.supervision == "parallel":
            language_pairs = pairs_of(linked.train, language)
            label, target_encoder = f"Linked words, {language}", encoders["target"]
            training[language] = linked_vectors(
                *encoders["source"], language_pairs, target_encoder=target_encoder, desc=label, **options
            )
    anchors = {}
    if needed := sources.anchor_languages(args):
        for language in [*sorted(needed), pivot]:
            anchors[language] = make_anchors(
                *encoders["target" if language == pivot else "source"],
                sources.sentences(language, linked, pivot, args),
                lang=language,
                max_words=args.max_words,
                sentences_per_word=args.sentences_per_word,
                ray=args.ray,
                **options,
            )
    return MappingData(pivot, training, held_out, anchors, sources, linked.protocols)


def learn(corpus: MappingData, language: str, args: MappingArguments) -> tuple[LanguageMap, Coverage | None]:
    """Learn the map of one language, in the run's direction; with the coverage of the training dictionary, if any."""
    coverage = None
    if args.supervision == "dictionary":
        anchors, pivot = corpus.anchors[language], corpus.anchors[corpus.pivot]
        entries = [(translation, word) for word, translation in corpus.sources.dictionaries[language]]
        pairs, coverage = dictionary_vectors(entries, anchors, pivot)
        sides = [(pairs.source, anchors.vectors, language), (pairs.target, pivot.vectors, corpus.pivot)]
    else:
        pairs = corpus.training[language]
        sides = [(pairs.source, pairs.source, language), (pairs.target, pairs.target, corpus.pivot)]
    if args.direction == "from_pivot":
        sides.reverse()
    (source, all_source, source_lang), (target, all_target, target_lang) = sides
    layers = tuple(args.layers)
    candidates: dict[str, Any] = {"source_candidates": all_source, "target_candidates": all_target}
    if args.method == "procrustes":
        maps = procrustes(source, target, center=args.center, layers=layers)
        if args.refine:
            maps = refine(all_source[:, 0], all_target[:, 0], maps, iterations=args.refine)
    elif args.method == "least_squares":
        maps = least_squares(source, target, center=args.center, layers=layers)
    elif args.method == "rcsls":
        maps = rcsls(
            source,
            target,
            epochs=args.rcsls_epochs,
            learning_rate=args.rcsls_learning_rate,
            spectral=args.spectral,
            steps=("unit", "center", "unit") if args.center else ("unit",),
            layers=layers,
            **candidates,
        )
    elif args.method == "vecmap":
        maps = vecmap(source, target, whiten=args.whiten, layers=layers, **candidates)
    else:
        rows = [anchors.lookup(pairs.source_words), pivot.lookup(pairs.target_words)]
        seeds = torch.stack(rows if args.direction == "to_pivot" else rows[::-1], dim=1)
        maps = self_learning(
            all_source[:, 0], all_target[:, 0], seeds, whiten=args.whiten, seed=args.seed, layers=layers
        )
    if args.linear:
        maps = maps.linear(all_source, all_target)
    return LanguageMap(maps.source, maps.target, maps.method, layers, source_lang, target_lang), coverage


def score(
    corpus: MappingData,
    args: MappingArguments,
    maps: Mapping[str, LanguageMap] | None = None,
    examples: Examples | None = None,
) -> tuple[Scores, dict[str, dict[str, list[float]]]]:
    """Score word retrieval and lexicon induction of each language and layer, without maps of the vectors as they are.

    Returns scores, `retrieval_*` and `bli_*` by language, and 95% intervals of the latter's two directions. With
    several layers each name ends in `, layer n`. `examples` is filled with every sentence's scores of retrieval.
    """
    scores: Scores = {}
    intervals: dict[str, dict[str, list[float]]] = {}
    for language, words in corpus.held_out.items():
        scores[language], intervals[language] = {}, {}
        language_map = None if maps is None else maps[language]
        for k, layer in enumerate(args.layers):
            project = _projection(None if language_map is None else language_map.of([layer]), args)
            word_examples: dict[str, Any] = {}
            name = f"retrieval_{args.pooling}"
            retrieved = words.score(name, corpus.protocols, layer=k, project=project, examples=word_examples)
            bounds: dict[str, list[float]] = {}
            if language in corpus.sources.test_dictionaries:
                protocols = [protocol for protocol in corpus.protocols if protocol.cosine or not protocol.name]
                induced, bounds = induction(corpus, language, k, project, args.seed, protocols)
                retrieved |= induced
            end = f", layer {layer}" if len(args.layers) > 1 else ""
            scores[language] |= {name + end: value for name, value in retrieved.items()}
            intervals[language] |= {name + end: value for name, value in bounds.items()}
            if examples is not None:
                examples.setdefault(language, {}).update(
                    {name + end: word_scores for name, word_scores in word_examples.items()}
                )
    return scores, intervals


def induction(
    corpus: MappingData, language: str, layer: int, project: Projection, seed: int, protocols: Sequence[Protocol]
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Score lexicon induction of one layer in both directions: scores, and 95% intervals."""
    anchors, pivot = corpus.anchors[language], corpus.anchors[corpus.pivot]
    source, target = project(anchors.vectors[:, layer], pivot.vectors[:, layer])
    test = corpus.sources.test_dictionaries[language]
    # Test words match anchors as training words do, also in another case.
    entries = list(
        zip(
            _anchor_words([translation for _, translation in test], anchors),
            _anchor_words([word for word, _ in test], pivot),
        )
    )
    back = [(word, translation) for translation, word in entries]
    scores: dict[str, float] = {}
    bounds: dict[str, list[float]] = {}
    for protocol in protocols:
        options: Any = {"similarity": "cosine" if protocol.cosine else "csls", "seed": seed}
        to_pivot = lexicon_induction(source, target, anchors.words, pivot.words, entries, **options)
        from_pivot = lexicon_induction(target, source, pivot.words, anchors.words, back, **options)
        for name in _PRECISIONS:
            scores[f"bli_{name}{protocol.end}"] = (to_pivot[name] + from_pivot[name]) / 2
            for direction, directed in (("to_pivot", to_pivot), ("from_pivot", from_pivot)):
                scores[f"bli_{name}_{direction}{protocol.end}"] = directed[name]
                bounds[f"bli_{name}_{direction}{protocol.end}"] = [directed[f"{name}_low"], directed[f"{name}_high"]]
        scores[f"bli_coverage{protocol.end}"] = to_pivot["coverage"]
        scores[f"pool_bli{protocol.end}"] = (to_pivot["source_vocabulary"] + to_pivot["target_vocabulary"]) / 2
    return scores, bounds


def _projection(language_map: LanguageMap | None, args: MappingArguments) -> Projection:
    if language_map is None:
        return lambda source, target: (source, target)
    source_side, pivot_side = SIDES if args.direction == "to_pivot" else SIDES[::-1]
    return lambda source, target: (language_map.project(source, source_side), language_map.project(target, pivot_side))


def _anchor_words(words: Sequence[str], anchors: Anchors) -> list[str]:
    """Return words as the anchors spell them; words without an anchor stay."""
    rows = anchors.lookup(words).tolist()
    return [word if row < 0 else anchors.words[row] for word, row in zip(words, rows)]
