"""The text of a run: loaded, word-linked, with the links that are scored on fixed."""

from __future__ import annotations

from typing import Any, NamedTuple

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.encoding import check_vocabulary
from hf_xalign.data.parallel import concatenate, hub_commit, load_sources, parse_source
from hf_xalign.links.align import align_words, link_statistics
from hf_xalign.links.frozen import make_evaluation_links, read_links
from hf_xalign.recipes.parts.common import DataArguments, ParallelText
from hf_xalign.record import hub_id


class LinkedText(NamedTuple):
    """The text of a run.

    Attributes:
        train: word-linked training pairs.
        evaluation: word-linked held-out pairs; pairs without a link are in it, as candidates.
        link_counts: statistics of the training links, by language pair.
        sources: the record's entries of the training and the held-out text.
    """

    train: Dataset
    evaluation: Dataset
    link_counts: dict[str, dict[str, Any]]
    sources: dict[str, list[dict[str, Any]]]


def describe_links(link_counts: dict[str, dict[str, Any]], evaluation: Dataset) -> list[str]:
    """The text and its links, a line a language pair, and what is held out, for people."""
    return [
        *(
            f"text     {pair}: " + ", ".join(f"{value} {name}" for name, value in counts.items())
            for pair, counts in link_counts.items()
        ),
        f"held out {len(evaluation)} pairs, {sum(map(len, evaluation['links'][:]))} links",
    ]


def load_text(
    data: DataArguments,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    eval_links: str | None,
    subwords: bool = False,
    seed: int = 0,
) -> LinkedText:
    """Load the text, link the words of both parts, and fix the links to score on.

    Args:
        data: what to load and how to link it.
        model: the encoder, for `aligner=encoder`.
        tokenizer: its tokenizer.
        eval_links: a file of linked held-out pairs, in place of `data.eval_data`.
        subwords: link the tokenizer's tokens instead of words.
        seed: of aligners that draw at random.

    Raises:
        InputError: anything that the data arguments name is missing or malformed, or does not go together.
    """
    train, train_sources = load_parts(data.train_data, data.train_split, data.max_train_pairs, data)
    for side in ("source", "target"):
        check_vocabulary(tokenizer, train[side][:200], f"the {side} side of {', '.join(data.train_data)}")
    if eval_links:
        evaluation = read_links(eval_links)
        eval_sources: list[dict[str, Any]] = [{"source": eval_links, "hub_id": None, "pairs": len(evaluation)}]
    else:
        test, eval_sources = load_parts(data.eval_data, data.eval_split, data.max_eval_pairs, data)
        evaluation = make_evaluation_links(test, train)
    text = train
    if subwords:
        text = train.map(_subwords, fn_kwargs={"tokenizer": tokenizer}, batched=True, desc="Splitting into subwords")
    encoder: dict[str, Any] = {"model": model, "tokenizer": tokenizer} if data.aligner == "encoder" else {}
    linked = align_words(
        text, data.aligner, data.symmetrization, data.one_to_one, data.drop_identical, seed=seed, **encoder
    )
    counts = {
        pair: {
            "pairs": found.pairs,
            "dropped pairs": found.dropped,
            "links": found.links,
            "links a pair": round(found.links_per_pair, 2),
        }
        for pair, found in link_statistics(linked, train).items()
    }
    return LinkedText(linked, evaluation, counts, {"train": train_sources, "eval": eval_sources})


def load_parts(
    items: list[str], split: str, max_pairs: int | None, data: ParallelText
) -> tuple[Dataset, list[dict[str, Any]]]:
    """The text of some sources as one corpus, and the record's entry of each.

    Args:
        items: what `train_data` or `eval_data` names.
        split: of embedded and Hub data.
        max_pairs: of each source.
        data: the pivot, and what becomes of empty sides.

    Raises:
        InputError: anything named is missing or malformed, or there is nothing.
    """
    parts, entries = [], []
    for item in items:
        part = load_sources(
            [item], target_lang=data.target_lang, split=split, max_pairs=max_pairs, on_empty=data.on_empty
        )
        source, language = parse_source(item)
        entry = {
            "source": item,
            "hub_id": hub_id(source.partition(":")[0]),
            "language": language,
            "split": split,
            "revision": hub_commit(part),
            "pairs": len(part),
        }
        entries.append({**entry, "fingerprint": part._fingerprint})
        parts.append(part)
    return concatenate(parts), entries


def _subwords(batch: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase) -> dict[str, list[list[str]]]:
    """The tokenizer's own tokens in the place of words, which `align_words` then links."""
    return {f"{side}_words": [tokenizer.tokenize(text) for text in batch[side]] for side in ("source", "target")}
