"""Tokenizers made for a corpus: trained on it, cut from a larger tokenizer, or extended."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_xalign.data.derived.transliteration import WORD_START
from hf_xalign.errors import InputError

logger = logging.getLogger(__name__)

# "▁" marks the start of each word, and no piece crosses a blank.
SPLIT_AT_BLANKS = pre_tokenizers.Sequence(
    [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
)

_TEXTS_A_BATCH = 1000
_BYTE = re.compile("<0x[0-9A-F]{2}>")  # a token of `byte_fallback`
_PRIVATE = 0xF0000  # start of Unicode's private plane of 65,534 characters


def train_tokenizer(
    texts: Sequence[str], vocab_size: int, *, kind: Literal["bpe", "unigram"] = "bpe", max_length: int = 512
) -> PreTrainedTokenizerFast:
    """Train a tokenizer on texts, with RoBERTa's special tokens and templates.

    Text is NFKC-normalised and split at blanks; "▁" marks the start of a word, as in XLM-R. No piece crosses a blank,
    and every character of the texts has a piece. Special tokens are `<s> <pad> </s> <unk> <mask>`, ids 0 to 4.
    `vocab_size` counts special pieces too; `max_length` is the tokenizer's `model_max_length`.

    `bpe` is the kind of ALIGN-MLM's models. Training `unigram` sums scores in random order, so ids differ a little
    between runs: save the tokenizer.
    """
    *_, unk, mask = specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    normalizer = normalizers.NFKC()
    characters: set[str] = set()
    for text in texts:
        characters.update(normalizer.normalize_str(text))
    characters = {c for c in characters if not c.isspace()}
    if not characters:
        raise InputError("there is no text to train a tokenizer on")
    fewest = len(specials) + len(characters | {WORD_START})
    if vocab_size < fewest:
        raise InputError(
            f"vocab_size={vocab_size:,} is too small: special tokens and the characters of the text are {fewest:,}"
        )
    options: dict[str, Any] = {
        "vocab_size": vocab_size,
        "special_tokens": [*specials[:-1], AddedToken(mask, lstrip=True)],
        "show_progress": int(os.environ.get("RANK", "0")) == 0,
    }
    trainer: trainers.Trainer
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token=unk))
        trainer = trainers.BpeTrainer(**options)
    else:
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(unk_token=unk, **options)
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = SPLIT_AT_BLANKS
    tokenizer.train_from_iterator(texts, trainer)
    return roberta_tokenizer(tokenizer, specials, max_length)


def roberta_tokenizer(tokenizer: Tokenizer, specials: Sequence[str], max_length: int) -> PreTrainedTokenizerFast:
    """Give a tokenizer that splits at blanks RoBERTa's templates; `specials` are its `<s> <pad> </s> <unk> <mask>`."""
    bos, pad, eos, unk, mask = specials
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[bos, "$A", eos],
        pair=[bos, "$A", eos, eos, "$B", eos],
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (bos, eos)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        eos_token=eos,
        cls_token=bos,
        sep_token=eos,
        unk_token=unk,
        pad_token=pad,
        mask_token=AddedToken(mask, lstrip=True, special=True),
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
    )


def cut_tokenizer(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], vocab_size: int
) -> tuple[PreTrainedTokenizerFast, np.ndarray]:
    """Keep the pieces that some texts use most, so that a small model can start from a large one's embeddings.

    Keeps special tokens, pieces of one character of the texts (also after "▁"), and the pieces that the texts use most
    often. Text of a dropped piece is split into smaller ones. Scores, order and normalisation do not change.

    Returns the tokenizer of at most `vocab_size` pieces, and int64 (pieces,), the old id of each piece:
    `embeddings[old_ids]` are its embeddings.
    """
    spec = tokenizer_spec(tokenizer)
    if spec["model"]["type"] != "Unigram":
        raise InputError(
            f"{_name(tokenizer)}: {spec['model']['type']} pieces are made of one another, so none can be dropped. "
            "Take a Unigram tokenizer (XLM-R's), or train one by train_tokenizer."
        )
    vocabulary = spec["model"]["vocab"]
    counts, characters = _usage(Tokenizer.from_str(json.dumps(spec)), texts, len(vocabulary))
    if not counts.any():
        raise InputError("there is no text to choose the pieces by")
    kept = {token["id"] for token in spec["added_tokens"]} | {spec["model"]["unk_id"]}
    singles = {WORD_START, *characters, *(WORD_START + c for c in characters)}
    kept.update(i for i, (piece, _) in enumerate(vocabulary) if piece in singles)
    if len(kept) > vocab_size:
        raise InputError(
            f"vocab_size={vocab_size:,} is too small: special tokens and single characters are {len(kept):,} pieces"
        )
    used = [int(i) for i in np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)] if i not in kept]
    old_ids = np.array(sorted(kept.union(used[: vocab_size - len(kept)])), dtype=np.int64)
    if len(old_ids) < vocab_size:
        logger.info("the texts use %s pieces, fewer than the %s asked for", f"{len(old_ids):,}", f"{vocab_size:,}")
    new_id = {old: new for new, old in enumerate(old_ids.tolist())}
    spec["model"]["vocab"] = [vocabulary[old] for old in new_id]
    spec["model"]["unk_id"] = new_id[spec["model"]["unk_id"]]
    for token in spec["added_tokens"]:
        token["id"] = new_id[token["id"]]
    _renumber(spec["post_processor"], lambda old: new_id[old])
    return rebuild(tokenizer, spec), old_ids


def add_pieces(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], count: int) -> PreTrainedTokenizerFast:
    """Add at most `count` pieces for the words that a tokenizer writes as unknown tokens or as bytes.

    The pieces are trained on these words alone, in the tokenizer's own way (Unigram, WordPiece, BPE). Each has a
    character that the vocabulary lacks, so that other text keeps its tokens. New ids begin at `len(tokenizer)`.

    Raises:
        InputError: the tokenizer can write every word, `count` is below the number of missing characters, or the
            vocabulary is of another kind.
    """
    spec = tokenizer_spec(tokenizer)
    model = spec["model"]
    kind, prefix = model["type"], model.get("continuing_subword_prefix") or ""
    if kind not in ("Unigram", "WordPiece", "BPE") or model.get("end_of_word_suffix") or (kind == "BPE" and prefix):
        raise InputError(
            f"{_name(tokenizer)}: no pieces can be added to a {kind} vocabulary with this mark of words. Take a "
            "Unigram, WordPiece or BPE tokenizer that marks the start of words"
        )
    words, unwritable = _unwritten(spec, texts)
    if not words:
        raise InputError(f"{_name(tokenizer)}: the tokenizer can write every word of the text, so it needs no pieces")
    known = {piece for piece, _ in model["vocab"]} if kind == "Unigram" else set(model["vocab"])
    characters = {c for word in words for c in word}
    forms = {c: {c, prefix + c} for c in characters}
    missing = {c for c in characters if not forms[c] <= known}
    fewest = len(set().union(*(forms[c] for c in missing)) - known)
    if count < fewest:
        raise InputError(f"{count} new pieces are too few: the characters that are missing are {fewest} of them")
    size = count + sum(len(forms[c]) for c in characters - missing)  # the trainer counts known characters too
    options: dict[str, Any] = {"show_progress": False, "vocab_size": size}
    if kind == "BPE":
        _add_merges(model, words, sorted(missing), unwritable, count)
    elif kind == "Unigram":
        trained = Tokenizer(models.Unigram())
        trained.train_from_iterator(words.elements(), trainers.UnigramTrainer(unk_token="<unk>", **options))
        found = json.loads(trained.to_str())["model"]["vocab"]
        new = [entry for entry in found if entry[0] not in known and missing & set(entry[0])]
        model["vocab"] += sorted(new, key=lambda entry: (len(entry[0]) > 1, -entry[1]))[:count]
    else:
        trained = Tokenizer(models.WordPiece(unk_token=model["unk_token"]))
        trained.train_from_iterator(
            words.elements(), trainers.WordPieceTrainer(continuing_subword_prefix=prefix, **options)
        )
        pieces = sorted(trained.get_vocab().items(), key=lambda entry: entry[1])  # characters first
        new = [piece for piece, _ in pieces if piece not in known and missing & set(piece.removeprefix(prefix))]
        model["vocab"] |= {piece: len(known) + k for k, piece in enumerate(new[:count])}
    return rebuild(tokenizer, spec)


def _unwritten(spec: dict[str, Any], texts: Iterable[str]) -> tuple[Counter[str], Callable[[Any], bool]]:
    """Count the words with tokens that stand for no text, and return the test of such a token."""
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    unknown = spec["model"].get("unk_id", tokenizer.token_to_id(spec["model"].get("unk_token") or ""))
    bytewise = '"ByteLevel"' in json.dumps([spec["normalizer"], spec["pre_tokenizer"]])
    decoder = decoders.ByteLevel()

    def unwritable(token: Any) -> bool:
        part_of_character = bytewise and "\ufffd" in decoder.decode([token.value])
        return token.id == unknown or part_of_character or bool(_BYTE.fullmatch(token.value))

    words = Counter[str]()
    for text in texts:
        normal = text if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(text)
        split = tokenizer.pre_tokenizer
        parts = [normal] if split is None else [part for part, _ in split.pre_tokenize_str(normal)]
        words.update(word for part in parts for word in re.split(f"(?<!^)(?={WORD_START})", part))
    return Counter({w: n for w, n in words.items() if any(map(unwritable, tokenizer.model.tokenize(w)))}), unwritable


def _add_merges(
    model: dict[str, Any], words: Counter[str], missing: list[str], unwritable: Callable[[Any], bool], count: int
) -> None:
    """Continue the training of a BPE vocabulary: merge the tokens that it splits words into."""
    vocabulary = model["vocab"]
    most = len(vocabulary) + count
    for character in missing:
        vocabulary[character] = len(vocabulary)
    # Each token is one character to the trainer.
    tokens: dict[str, str] = {}
    new, runs = set[str](), Counter[str]()
    split = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model})).model
    for word, times in words.items():
        run = ""
        for token in split.tokenize(word):
            run += (unit := tokens.setdefault(token.value, chr(_PRIVATE + len(tokens))))
            if token.value in missing or unwritable(token):
                new.add(unit)
        runs[run] += times
    trained = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=len(tokens) + count, show_progress=False)
    trained.train_from_iterator(runs.elements(), trainer)
    text = {unit: token for token, unit in tokens.items()}
    for pair in json.loads(trained.to_str())["model"]["merges"]:
        first, second = ("".join(text[unit] for unit in part) for part in pair)
        if len(vocabulary) < most and new & set("".join(pair)) and {first, second} <= vocabulary.keys():
            model["merges"].append([first, second])
            vocabulary.setdefault(first + second, len(vocabulary))


def tokenizer_spec(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the content of `tokenizer.json`, with added tokens made part of the model's vocabulary."""
    if not tokenizer.is_fast:
        raise InputError(
            f"{_name(tokenizer)} is not a fast tokenizer. Load one with a tokenizer.json by AutoTokenizer."
        )
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    spec["truncation"] = spec["padding"] = None  # left over from the last call
    model = spec["model"]
    vocabulary = model["vocab"]
    for token in sorted(spec["added_tokens"], key=lambda token: token["id"]):
        if token["id"] < len(vocabulary):
            continue
        if token["id"] > len(vocabulary):
            raise InputError(f"{_name(tokenizer)}: no token has the id {len(vocabulary)}, before {token['content']}")
        # The model never sees them, so their score must only not be a new lowest one.
        if isinstance(vocabulary, list):
            vocabulary.append([token["content"], min(score for _, score in vocabulary)])
        else:
            vocabulary[token["content"]] = token["id"]
    return spec


def rebuild(tokenizer: PreTrainedTokenizerBase, spec: dict[str, Any]) -> PreTrainedTokenizerFast:
    """Make a tokenizer from `spec` with the special tokens and settings of `tokenizer`.

    Its class is the general one, because classes named after models replace normaliser and pre-tokenizer when loaded.
    """
    by_content = {token.content: token for token in tokenizer.added_tokens_decoder.values()}
    roles = {role: by_content.get(str(token), str(token)) for role, token in tokenizer.special_tokens_map.items()}
    named = set(map(str, roles.values()))
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(spec)),
        **roles,
        extra_special_tokens=[by_content[token] for token in tokenizer.all_special_tokens if token not in named],
        model_max_length=tokenizer.model_max_length,
        model_input_names=list(tokenizer.model_input_names),
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
    )


def _usage(tokenizer: Tokenizer, texts: Iterable[str], size: int) -> tuple[np.ndarray, set[str]]:
    """Count each piece, int64 (size,), and collect the characters of the normalised texts."""
    counts = np.zeros(size, dtype=np.int64)
    characters: set[str] = set()
    normalize = tokenizer.normalizer.normalize_str if tokenizer.normalizer is not None else str
    stream = iter(texts)
    while batch := list(itertools.islice(stream, _TEXTS_A_BATCH)):
        for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            np.add.at(counts, encoding.ids, 1)
        characters.update(*map(normalize, batch))
    return counts, {c for c in characters if not c.isspace()}


def _renumber(processor: dict[str, Any] | None, new_id: Callable[[int], int]) -> None:
    """Give the special tokens of a post-processor their new ids."""
    if processor is None:
        return
    for part in processor.get("processors", []):
        _renumber(part, new_id)
    for token in processor.get("special_tokens", {}).values():
        token["ids"] = [new_id(old) for old in token["ids"]]
    for role in ("cls", "sep"):
        if role in processor:
            processor[role][1] = new_id(processor[role][1])


def _name(tokenizer: PreTrainedTokenizerBase) -> str:
    return tokenizer.name_or_path or type(tokenizer).__name__
