"""Score an encoder by retrieval of linked words."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import Pooling
from hf_xalign.data.encoding import special_frame
from hf_xalign.data.parallel import check_columns
from hf_xalign.errors import InputError
from hf_xalign.evaluation.retrieval import check_links, check_pool, directions, sentence_examples, shares, word_hits
from hf_xalign.evaluation.vectors import language_rows, side_texts, side_vectors
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.word_vectors import WordVectors, extract_pooled
from hf_xalign.score import Score
from hf_xalign.search.csls import index_pairs
from hf_xalign.statistics.examples import ExampleScores

logger = logging.getLogger(__name__)

Scores = dict[str, dict[str, float]]
# Scores of every sentence by language and metric, for tests of significance.
Examples = dict[str, dict[str, ExampleScores]]
TextVectors = dict[str, dict[str, dict[str, WordVectors]]]  # by language, side and pooling


class Protocol(NamedTuple):
    """A way to score vectors; the names of its scores end in `, ` and the protocol's name.

    The default is our protocol. `identical`: links of identical words, numbers and punctuation count too. `specials`:
    [CLS] and [SEP] count as linked words. `legacy`: the published variant of CSLS, see
    [`~hf_xalign.search.csls.nearest_neighbours`]. `cosine`: lexicon induction ranks by cosine instead of CSLS.
    """

    name: str = ""
    identical: bool = False
    specials: bool = False
    legacy: bool = False
    cosine: bool = False


def merge_scores(scores: Scores, more: Scores) -> Scores:
    """Merge two sets of scores by language."""
    languages = dict.fromkeys([*scores, *more])
    return {language: {**scores.get(language, {}), **more.get(language, {})} for language in languages}


def fill_words(scores: dict[str, Any], pooling: str) -> None:
    """Fill in the scores of word vectors before training, which equal those of the bare encoder's pooled tokens."""
    for language, before in scores["before"].items():
        for end in ("", "_types"):
            words, tokens = (Score("retrieval", f"{name}{end}").directions() for name in ("words", pooling))
            for word, token in zip(words, tokens, strict=True):
                if word.name in scores["after"][language] and token.name in before:
                    before[word.name] = before[token.name]


def read_protocols(names: Sequence[str] | None) -> tuple[Protocol, ...]:
    """Return our protocol and the named ones: `mao`, or settings of [`Protocol`] such as `legacy` or
    `legacy+specials`.

    Example:
        >>> [protocol.name for protocol in read_protocols(["mao", "identical+legacy"])]
        ['', 'mao', 'identical+legacy']
    """
    _, *every = Protocol._fields
    protocols = [Protocol()]
    for name in dict.fromkeys(names or ()):
        settings = every if name == "mao" else name.split("+")
        if not set(settings) <= set(every):
            raise InputError(f"protocol={name}: give mao, or one or more of {', '.join(every)}, joined by +")
        protocols.append(Protocol(name, **dict.fromkeys(settings, True)))
    return tuple(protocols)


def score_retrieval(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    layer: int = -1,
    poolings: Sequence[Pooling] = ("mean",),
    all_occurrences: bool = False,
    protocols: Sequence[Protocol] = (Protocol(),),
    word_view: bool = False,
    batch_size: int = 64,
    max_length: int | None = None,
    dtype: torch.dtype | None = None,
    desc: str | None = None,
    examples: Examples | None = None,
) -> Scores:
    """Score CSLS (k = 10) word retrieval for each language of a word-aligned dataset (Cao et al. 2020).

    Args:
        model: the encoder.
        tokenizer: its fast tokenizer.
        dataset: `source_words`, `target_words`, `links` (1-to-1) and `source_lang`; `target_lang` for a model with one
            map per language; `all_links` (1-to-1) for a protocol with identical words.
        layer: layer to score.
        poolings: subword poolings to score, all from one pass of the encoder.
        all_occurrences: also score with all word occurrences, linked or not, as candidates.
        protocols: ways to score, see [`read_protocols`], all from one pass of the encoder.
        word_view: also score `retrieval_words`, where the module on top reads a sentence as a sequence of word
            vectors, on which MAO trains it.
        batch_size: sentences per forward pass.
        max_length: maximum number of tokens per sentence. Links of truncated words count as misses.
        dtype: autocast dtype of the forward passes, or None. CSLS is always float32.
        desc: label of the progress bar, or None.
        examples: dict that is filled with the scores of every sentence, `{language: {metric: ExampleScores}}`, for the
            metrics that are means of both directions. Their totals equal the returned scores.

    Returns:
        `{language: {metric: value}}`. For each pooling `p`, fractions in [0, 1]: `retrieval_p` (the headline score:
        mean of both directions, candidates are the linked words), `retrieval_p_to_pivot`, `retrieval_p_from_pivot`,
        `retrieval_p_types` (any occurrence of the linked word counts) and, with `all_occurrences`, `retrieval_p_all`.
        `pool` and `pool_all` are the numbers of candidates, averaged over both sides.

    Example:
        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> scores = score_retrieval(BertModel(tiny.config), tiny.tokenizer, tiny.pairs)
        >>> sorted(scores["de"])
        ['pool', 'retrieval_mean', 'retrieval_mean_from_pivot', 'retrieval_mean_to_pivot', 'retrieval_mean_types']
    """
    needed = ("source_words", "target_words", "links", "source_lang")
    dataset = check_columns(dataset, needed, "the dataset", "Run hf_xalign.links.align_words on it first.")
    specials = check_protocols(protocols, tokenizer, dataset)
    options: Any = {"specials": specials, "desc": desc, "batch_size": batch_size, "max_length": max_length}
    options |= {"dtype": dtype, "poolings": poolings, "word_view": word_view}
    vectors = text_vectors(model, tokenizer, dataset, layer=layer, **options)
    device = next(model.parameters()).device
    return score_vectors(
        vectors, dataset, protocols, all_occurrences=all_occurrences, device=device, examples=examples
    )


def text_vectors(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    layer: int = -1,
    poolings: Sequence[Pooling] = ("mean",),
    word_view: bool = False,
    desc: str | None = None,
    **options: Any,
) -> TextVectors:
    """Extract the vectors of all words of a word-aligned dataset in one pass; arguments as in [`score_retrieval`]."""
    by_language: TextVectors = {}
    for side, code, sentences, places in side_texts(dataset, "_words"):
        label = desc and f"{desc} ({code or side})"
        with language_context(model, code):
            vectors: dict[str, WordVectors] = dict(
                extract_pooled(model, tokenizer, sentences, layers=(layer,), poolings=poolings, desc=label, **options)
            )
            if word_view:
                label = label and f"{label}, words"
                viewed = extract_pooled(
                    model, tokenizer, sentences, poolings=("first",), desc=label, word_view=True, **options
                )
                vectors["words"] = viewed["first"]
        for language, rows in places.items():
            of_side = by_language.setdefault(language, {}).setdefault(side, {})
            for pooling, pooled in vectors.items():
                of_side[pooling] = pooled.of_sentences(rows)
    return by_language


def score_vectors(
    vectors: TextVectors,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    *,
    device: torch.device,
    all_occurrences: bool = False,
    examples: Examples | None = None,
    scored: Collection[str] = (),
) -> Scores:
    """Score the vectors of [`text_vectors`] as [`score_retrieval`] does.

    Links are not scored by poolings in `scored`; all occurrences are scored by every pooling.
    """
    specials = any(protocol.specials for protocol in protocols)
    scores: Scores = {}
    for language, row_ids in language_rows(dataset).items():
        sides, scores[language] = vectors[language], {}
        some = next(iter(sides["source"]))
        ends = (sides["source"][some], sides["target"][some])
        links, kinds, words = _flat_links(dataset.select(row_ids), *ends, specials)
        scored_rows = None if examples is None else examples.setdefault(language, {})
        for pooling in sides["source"]:
            source, target, score = sides["source"][pooling], sides["target"][pooling], Score("retrieval", pooling)
            if pooling not in scored:
                held_out = HeldOutWords.of(source, target, links, kinds, words)
                scores[language] |= held_out.score(score, protocols, device, examples=scored_rows)
            if all_occurrences and pooling != "words":
                ours = links[~kinds.any(1)]
                every = replace(score, pooling=f"{pooling}_all")
                scores[language] |= _score_all(source, target, ours, specials, every, device, scored_rows)
    return scores


class HeldOutWords(NamedTuple):
    """Vectors of linked words, float32 (links, layers, dim), their words by side, and kinds, bool (links, 2).

    A kind is (identical, special): the settings that a protocol needs to count the link. `sentences` int64 (links,) is
    the sentence of each link, `texts` the number of sentences. `present` bool (links,) is False for a link of a word
    that the encoder cuts off: it has no vector, and is a miss in both directions.
    """

    source: Tensor
    target: Tensor
    words: dict[str, list[str]]
    kinds: Tensor
    sentences: Tensor
    texts: int
    present: Tensor

    @classmethod
    def of(
        cls, source: WordVectors, target: WordVectors, links: Tensor, kinds: Tensor, words: dict[str, list[str]]
    ) -> HeldOutWords:
        """Select the vectors of links between all words of a text."""
        return cls(
            source.vectors[links[:, 0]],
            target.vectors[links[:, 1]],
            words,
            kinds,
            _sentences(source, links),
            len(source.offsets) - 1,
            _present(source, target, links),
        )

    def score(
        self,
        score: Score,
        protocols: Sequence[Protocol] = (Protocol(),),
        device: torch.device | None = None,
        *,
        layer: int = 0,
        project: Callable[..., tuple[Tensor, ...]] = lambda *sides: sides,
        examples: dict[str, ExampleScores] | None = None,
    ) -> dict[str, float]:
        """Score word retrieval by each protocol, after `project` has mapped the vectors of both sides.

        `score` has the pooling of the vectors and, if several layers are scored, the number of `layer`.
        `examples` is filled with the scores of every sentence by metric.
        """
        scores: dict[str, float] = {}
        for protocol in protocols:
            asked = (~self.kinds | torch.tensor([protocol.identical, protocol.specials])).all(1).nonzero().flatten()
            present = self.present[asked]
            queried = asked[present]
            source, target = project(self.source[queried, layer], self.target[queried, layer])
            words = [list(map(texts.__getitem__, queried.tolist())) for texts in self.words.values()]
            links = torch.arange(len(queried))[:, None].expand(-1, 2)
            check_pool(len(queried), "words")
            found = word_hits(source, target, links, words, legacy=protocol.legacy, device=device)
            hits, types = (_with_misses(cast(Tensor, some), present) for some in found)
            mean = replace(score, protocol=protocol.name)
            scores |= shares(mean, hits)
            scores[replace(mean, pooling=f"{score.pooling}_types").name] = directions("", *types.T)["mean"]
            scores[mean.pool().name] = float(len(queried))
            if examples is not None:
                examples[mean.name] = sentence_examples(hits, self.sentences[asked], self.texts)
        return scores


def held_out_words(
    encoders: dict[str, tuple[PreTrainedModel, PreTrainedTokenizerBase]],
    rows: Dataset,
    protocols: Sequence[Protocol],
    *,
    desc: str | None = None,
    **options: Any,
) -> HeldOutWords:
    """Extract the linked words of one language pair, each side by its encoder; `options` as in `side_vectors`."""
    specials = False
    for _, tokenizer in encoders.values():
        specials = check_protocols(protocols, tokenizer, rows)
    vectors = {}
    for side, (model, tokenizer) in encoders.items():
        label = desc and f"{desc} ({side})"
        vectors[side] = side_vectors(model, tokenizer, rows, side, specials=specials, desc=label, **options)
    links, kinds, words = _flat_links(rows, vectors["source"], vectors["target"], specials)
    return HeldOutWords.of(vectors["source"], vectors["target"], links, kinds, words)


def check_protocols(protocols: Sequence[Protocol], tokenizer: PreTrainedTokenizerBase, dataset: Dataset) -> bool:
    """Return whether the protocols need special tokens; raise an InputError if text or tokenizer do not suit them."""
    specials = any(protocol.specials for protocol in protocols)
    if specials and not all(special_frame(tokenizer)):
        raise InputError("protocol with specials: this tokenizer does not add special tokens at both ends. Remove it.")
    if any(protocol.identical for protocol in protocols) and "all_links" not in dataset.column_names:
        raise InputError(
            "protocol with identical: the evaluation links have no all_links. Make them from text again (eval_data, "
            "or --data), or remove identical."
        )
    return specials


def _flat_links(
    rows: Dataset, source: WordVectors, target: WordVectors, specials: bool
) -> tuple[Tensor, Tensor, dict[str, list[str]]]:
    """Return links as rows of the vectors, their kinds (see [`HeldOutWords`]), and the words of each link."""
    words: dict[str, list[str]] = {"source": [], "target": []}
    pairs, kinds = [], []
    for number, (row, s, t) in enumerate(zip(rows, source.offsets.tolist(), target.offsets.tolist())):
        ours = set(map(tuple, row["links"]))
        links = [*row["links"], *(link for link in row.get("all_links") or () if tuple(link) not in ours)]
        kinds += [(False, False)] * len(ours) + [(True, False)] * (len(links) - len(ours))
        sizes = [len(row["source_words"]), len(row["target_words"])]
        # Otherwise a word of another sentence would be scored.
        if links:
            index_pairs(links, f"pair {number} in {row['source_lang']}, links", (sizes[0], sizes[1]))
        if specials:
            links += [sizes, [size + 1 for size in sizes]]
            kinds += [(False, True)] * 2
        pairs.append(np.asarray(links, dtype=np.int64).reshape(-1, 2) + np.array([[s, t]]))
        for side, texts in words.items():
            texts.extend(row[f"{side}_words"] + (["[CLS]", "[SEP]"] if specials else []))
    flat = check_links(np.concatenate(pairs), len(words["source"]), len(words["target"]))
    if cut := int((~_present(source, target, flat)).sum()):
        logger.warning(
            "%s: %d of %d links have a word that the encoder cuts off: misses", rows[0]["source_lang"], cut, len(flat)
        )
    ends = {side: [texts[row] for row in flat[:, n].tolist()] for n, (side, texts) in enumerate(words.items())}
    return flat, torch.tensor(kinds, dtype=torch.bool).reshape(-1, 2), ends


def _present(source: WordVectors, target: WordVectors, links: Tensor) -> Tensor:
    """Return which links have a vector on both sides, bool (links,)."""
    return source.present[links[:, 0]] & target.present[links[:, 1]]


def _with_misses(hits: Tensor, present: Tensor) -> Tensor:
    """Return the hits of all links, bool (links, 2), from those of the links with vectors."""
    found = torch.zeros(len(present), 2, dtype=torch.bool)
    found[present] = hits.cpu()
    return found


def _sentences(source: WordVectors, links: Tensor) -> Tensor:
    """Return the sentence of each link, int64 (links,)."""
    return torch.searchsorted(source.offsets, links[:, 0].contiguous(), right=True) - 1


def _score_all(
    source: WordVectors,
    target: WordVectors,
    links: Tensor,
    specials: bool,
    score: Score,
    device: torch.device,
    examples: dict[str, ExampleScores] | None,
) -> dict[str, float]:
    """Score our protocol with all words of the text as candidates, linked or not; fill `examples`."""
    pools = []
    for side in (source, target):
        words = side.present.clone()
        if specials:
            words[torch.cat([side.offsets[1:] - 1, side.offsets[1:] - 2])] = False
        pools.append(words)
    present = _present(source, target, links)
    candidate_rows = [torch.cumsum(words, 0) - 1 for words in pools]
    sides = source.vectors[pools[0], 0], target.vectors[pools[1], 0]
    rows_of_links = torch.stack([rows[links[present, n]] for n, rows in enumerate(candidate_rows)], dim=1)
    hits = _with_misses(word_hits(*sides, rows_of_links, device=device)[0], present)
    if examples is not None:
        examples[score.name] = sentence_examples(hits, _sentences(source, links), len(source.offsets) - 1)
    return {
        score.name: directions("", *hits.T)["mean"],
        Score("pool", "all").name: (len(sides[0]) + len(sides[1])) / 2,
    }
