"""Train a tokenizer, cut a larger one, add pieces to one, or extend one by a transliterated copy of its vocabulary."""

from __future__ import annotations

import base64
import itertools
import json
import logging
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_xalign.checks import check_range
from hf_xalign.data.builtin import build_charsmap
from hf_xalign.data.derived.language import LETTERS, WORD_START, Alphabet, normalized_character
from hf_xalign.data.encoding import check_fast, tokenizer_name
from hf_xalign.environment import is_first_process
from hf_xalign.errors import InputError, explained

logger = logging.getLogger(__name__)

Spec = dict[str, Any]  # the content of tokenizer.json, or a part of it

# "▁" marks the start of each word, and no piece crosses a blank.
SPLIT_AT_BLANKS = pre_tokenizers.Sequence(
    [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
)

_TEXTS_A_BATCH = 1000  # that the tokenizer is trained on at once
_BYTE = re.compile("<0x[0-9A-F]{2}>")  # a token of `byte_fallback`
_PRIVATE = 0xF0000  # start of Unicode's private planes of 65,534 characters each
_ROUNDS = 4  # rounds in which Unigram pieces are scored


def train_tokenizer(texts: Sequence[str], vocab_size: int, *, max_length: int = 512) -> PreTrainedTokenizerFast:
    """Train a BPE tokenizer on texts, as in ALIGN-MLM, with RoBERTa's special tokens and templates.

    Text is NFKC-normalized and split at blanks; "▁" marks the start of a word, as in XLM-R. No piece crosses a blank,
    and every character of the texts has a piece. Special tokens are `<s> <pad> </s> <unk> <mask>`, ids 0 to 4.

    `vocab_size` counts special tokens too, and is exceeded by a text of more characters; `max_length` is the
    tokenizer's `model_max_length`.
    """
    *_, unk, mask = specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE(unk_token=unk))
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*specials[:-1], AddedToken(mask, lstrip=True)],
        show_progress=is_first_process(),
    )
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = SPLIT_AT_BLANKS
    tokenizer.train_from_iterator(texts, trainer)
    return roberta_tokenizer(tokenizer, specials, max_length)


def roberta_tokenizer(tokenizer: Tokenizer, specials: Sequence[str], max_length: int) -> PreTrainedTokenizerFast:
    """Add RoBERTa's templates to a tokenizer that splits at blanks; `specials` are `<s> <pad> </s> <unk> <mask>`."""
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
    """Keep the pieces that texts use most often, so that a small model can start from a large model's embeddings.

    Special tokens, and single characters of the texts (also after "▁"), are always kept. Text of a dropped piece is
    split into smaller pieces. Scores, order and normalization do not change.

    Returns the tokenizer of `vocab_size` pieces, or fewer if the texts use fewer, and int64 (pieces,) with the old id
    of each piece, so that `embeddings[old_ids]` are the new embeddings.
    """
    spec = tokenizer_spec(tokenizer)
    if spec["model"]["type"] != "Unigram":
        fault = f"{spec['model']['type']} pieces are merged from others, so none can be dropped"
        raise InputError(f"{tokenizer_name(tokenizer)}: {fault}. Take a Unigram tokenizer (XLM-R's), or train one.")
    vocabulary = spec["model"]["vocab"]
    counts, characters = _usage(Tokenizer.from_str(json.dumps(spec)), texts, len(vocabulary))
    kept_ids = {token["id"] for token in spec["added_tokens"]} | {spec["model"]["unk_id"]}
    singles = {WORD_START, *characters, *(WORD_START + c for c in characters)}
    kept_ids.update(i for i, (piece, _) in enumerate(vocabulary) if piece in singles)
    used = [int(i) for i in np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)] if i not in kept_ids]
    old_ids = np.array(sorted(kept_ids.union(used[: max(0, vocab_size - len(kept_ids))])), dtype=np.int64)
    new_id = dict(zip(old_ids.tolist(), itertools.count()))
    spec["model"]["vocab"] = [vocabulary[old] for old in new_id]
    spec["model"]["unk_id"] = new_id[spec["model"]["unk_id"]]
    for token in spec["added_tokens"]:
        token["id"] = new_id[token["id"]]
    _renumber(spec["post_processor"], lambda old: new_id[old])
    return rebuild(tokenizer, spec), old_ids


def add_pieces(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], count: int, *, split_over: int | None = None
) -> PreTrainedTokenizerFast:
    """Add at most `count` pieces for the words that a tokenizer writes as unknown tokens or as bytes.

    The pieces are merged from these words alone, and every piece occurs in them; new ids begin at `len(tokenizer)`.
    Each new piece has a character that the vocabulary lacks, so other text keeps its tokens. With `split_over`, words
    of more tokens than that get pieces too, of any characters; other text with these pieces may then be split
    differently. Equal texts give equal pieces.
    """
    spec = tokenizer_spec(tokenizer)
    model = spec["model"]
    kind, prefix = model["type"], model.get("continuing_subword_prefix") or ""
    if kind not in ("Unigram", "WordPiece", "BPE") or model.get("end_of_word_suffix") or (kind == "BPE" and prefix):
        fault = f"no pieces can be added to a {kind} vocabulary that marks words in this way"
        advice = "Take a Unigram, WordPiece or BPE tokenizer that marks the start of words"
        raise InputError(f"{tokenizer_name(tokenizer)}: {fault}. {advice}")
    words, unwritable = _badly_written(spec, texts, split_over, tokenizer_name(tokenizer))
    if not words:
        raise InputError(f"{tokenizer_name(tokenizer)} can write every word of the text, so it needs no pieces")
    vocabulary = set(dict(model["vocab"]))
    units = {}
    for word in words:
        units[word] = [word[0], *(prefix + c for c in word[1:])]
    missing = sorted(set().union(*units.values()) - vocabulary)
    with explained("characters of the text without a piece"):
        check_range(least=len(missing), count=count)
    fresh = set(missing)
    if kind == "BPE":
        # New merges continue the vocabulary's own, so they start from the tokens that it splits words into.
        model["vocab"] |= _numbered(missing, len(vocabulary))
        split = _core(model)
        for word in words:
            tokens = split.tokenize(word)
            units[word] = [token.value for token in tokens]
            fresh.update(token.value for token in tokens if unwritable(token))
    if split_over is not None:
        fresh.update(itertools.chain.from_iterable(units.values()))
    merges, pieces = [], dict.fromkeys(missing)
    for first, second in _learn_merges(words, units, 2 * count, bytewise=kind == "BPE"):
        # A merge of known characters alone would change the tokens of other text.
        if fresh & {*first, *second}:
            merges.append((_join(first), _join(second)))
            pieces[_join([*first, *second], prefix)] = None
    new = [piece for piece in pieces if piece not in vocabulary]
    if kind == "Unigram":
        _add_scored(model, words, missing, new, count, competing=split_over is not None)
    elif kind == "WordPiece":
        old = model["vocab"]
        model["vocab"] = old | _numbered(new[:count], len(old))
        used = _usage_of(model, words)
        needed = [piece for piece in new[:count] if used[piece] or piece in missing]
        model["vocab"] = old | _numbered(needed, len(old))
    else:
        _add_merges(model, words, merges, len(vocabulary) + count)
    return rebuild(tokenizer, spec)


def _numbered(pieces: Iterable[str], start: int) -> dict[str, int]:
    return dict(zip(pieces, itertools.count(start)))


def _badly_written(
    spec: Spec, texts: Iterable[str], split_over: int | None, name: str
) -> tuple[Counter[str], Callable[[Any], bool]]:
    """Count the words that need unknown tokens, bytes or too many tokens, and return the test of one such token."""
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    unknown = spec["model"].get("unk_id", tokenizer.token_to_id(spec["model"].get("unk_token") or ""))
    bytewise = '"ByteLevel"' in json.dumps([spec["normalizer"], spec["pre_tokenizer"]])
    decoder = decoders.ByteLevel()

    def unwritable(token: Any) -> bool:
        part_of_character = bytewise and "\ufffd" in decoder.decode([token.value])
        return token.id == unknown or part_of_character or bool(_BYTE.fullmatch(token.value))

    def badly(word: str) -> bool:
        tokens = tokenizer.model.tokenize(word)
        pieces = sum(token.value != WORD_START for token in tokens)
        return any(map(unwritable, tokens)) or (split_over is not None and pieces > split_over)

    words, marks, kept_marks = Counter[str](), Counter[str](), Counter[str]()
    for text in texts:
        normal = text if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(text)
        marks.update(_marks(text))
        kept_marks.update(_marks(normal if not bytewise else text))
        split = tokenizer.pre_tokenizer
        chunks = [normal] if split is None else [chunk for chunk, _ in split.pre_tokenize_str(normal)]
        for chunk in chunks:
            words.update(re.split(f"(?<!^)(?={WORD_START})", chunk))
    if lost := marks - kept_marks:
        names = ", ".join(unicodedata.name(mark, f"U+{ord(mark):04X}") for mark, _ in lost.most_common(3))
        lost_marks = f"{lost.total():,} of the {marks.total():,} combining marks of the text ({names})"
        advice = "If they matter, take a model whose tokenizer keeps them"
        logger.warning("%s: its normalizer strips %s: some words become equal. %s", name, lost_marks, advice)
    return Counter({word: times for word, times in words.items() if word and badly(word)}), unwritable


def _marks(text: str) -> Iterator[str]:
    return (c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c).startswith("M"))


def _core(model: Spec) -> models.Model:
    return Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model})).model


def _usage_of(model: Spec, words: Counter[str]) -> Counter[str]:
    split, counts = _core(model), Counter[str]()
    for word, times in words.items():
        for token in split.tokenize(word):
            counts[token.value] += times
    return counts


def _join(units: Sequence[str], prefix: str = "") -> str:
    return units[0] + "".join(unit.removeprefix(prefix) for unit in units[1:])


def _learn_merges(
    words: Counter[str], units: dict[str, list[str]], count: int, *, bytewise: bool
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the most frequent merges of words that are given as units, by BPE, which is deterministic."""
    # The trainer sees each unit as one character.
    codes: dict[str, str] = {}
    runs = Counter[str]()
    for word, times in words.items():
        run = "".join(codes.setdefault(unit, chr(_PRIVATE + len(codes))) for unit in units[word])
        # Punctuation is not merged. In a bytewise vocabulary it may stand for a byte.
        marks = {codes[u] for u in units[word] if not bytewise and unicodedata.category(u[-1]).startswith("P")}
        for mark in marks:
            run = run.replace(mark, " ")
        for piece in run.split():
            runs[piece] += times
    trained = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=len(codes) + count, show_progress=False)
    trained.train_from_iterator(runs.elements(), trainer)
    text = dict(zip(codes.values(), codes))
    for first, second in json.loads(trained.to_str())["model"]["merges"]:
        yield [text[code] for code in first], [text[code] for code in second]


def _add_scored(
    model: Spec, words: Counter[str], missing: list[str], pieces: list[str], count: int, *, competing: bool
) -> None:
    """Add the most frequent pieces of the words, and all `missing` characters, to a Unigram vocabulary.

    Each round splits the words by the scores of the round before, and a piece by the logarithm of its frequency.
    """
    # New pieces that compete score just below the rarest one, so that frequent words of other text keep their pieces.
    lowest, scale = (min(score for _, score in model["vocab"]), 0.1) if competing else (0.0, 1.0)
    # A model of 250,000 pieces takes seconds to build, so it holds only pieces that occur in these words.
    substrings: set[str] = set()
    for word in words:
        substrings.update(word[start:end] for start, end in itertools.combinations(range(len(word) + 1), 2))
    old = [model["vocab"][model["unk_id"]], *(entry for entry in model["vocab"] if entry[0] in substrings)]
    small = {**model, "unk_id": 0}
    # Equal scores split words into as few pieces as possible.
    scores = dict.fromkeys(pieces, lowest - 10 * scale)
    for _ in range(_ROUNDS):
        used = _usage_of({**small, "vocab": [*old, *scores.items()]}, words)
        most = sorted((piece for piece in scores if used[piece]), key=lambda piece: (-used[piece], piece))
        most = [*missing, *(piece for piece in most if piece not in missing)][:count]
        scores = {piece: lowest + scale * math.log((used[piece] or 0.5) / used.total()) for piece in most}
    used = _usage_of({**small, "vocab": [*old, *scores.items()]}, words)
    model["vocab"] += ([piece, score] for piece, score in scores.items() if piece in missing or used[piece])


def _add_merges(model: Spec, words: Counter[str], merges: list[tuple[str, str]], most: int) -> None:
    """Add merges to a BPE vocabulary, up to a number of pieces, and drop those that no word needs."""
    old, start = len(model["merges"]), dict(model["vocab"])
    for first, second in merges:
        if len(model["vocab"]) < most and {first, second} <= model["vocab"].keys():
            model["merges"].append([first, second])
            model["vocab"].setdefault(first + second, len(model["vocab"]))
    # From the last merge to the first, because a merge that is needed needs those of its two parts.
    needed, needed_merges = set(_usage_of(model, words)), list[list[str]]()
    for first, second in reversed(model["merges"][old:]):
        if first + second in needed:
            needed |= {first, second}
            needed_merges.insert(0, [first, second])
    model["merges"][old:] = needed_merges
    model["vocab"] = start
    for first, second in needed_merges:
        start.setdefault(first + second, len(start))


# Rules that split text at blanks alone, so that they need no rule for letters.
_AT_BLANKS = {"Sequence", "WhitespaceSplit", "Metaspace"}


def extend_tokenizer(
    tokenizer: PreTrainedTokenizerBase, alphabet: Alphabet
) -> tuple[PreTrainedTokenizerFast, np.ndarray]:
    """Add a transliterated copy of the vocabulary.

    The tokenizer then splits a transliterated word where it splits the natural word, and the two vocabularies
    correspond one to one, which gives the dictionary of T_trans in Tang et al. (2022).

    - Every piece with a character of the alphabet gets a copy, with the same score (Unigram) or merges of the same
      rank (BPE). Special tokens get no copy, and "▁" stays. Copies get the ids from `len(tokenizer)` on, in the order
      of their originals.
    - The normalizer treats a letter like its character. If text is lower-cased, the letter of a capital becomes the
      letter of the small character.

    Text must be in NFC, because the normalizer's rules for sequences of characters are not copied.

    `alphabet` is `Alphabet.of(words, tokenizer)`. Returns the tokenizer, and int64 (n, 2) with the id of each natural
    piece and of its copy. The model then needs `model.resize_token_embeddings(len(tokenizer))`.
    """
    spec = tokenizer_spec(tokenizer)
    name = tokenizer_name(tokenizer)
    model = spec["model"]
    rules = spec["pre_tokenizer"] or {"type": "Sequence"}
    kinds = {rules["type"], *(rule["type"] for rule in rules.get("pretokenizers", ()))}
    bytewise = model.get("byte_fallback") or '"ByteLevel"' in json.dumps([spec["normalizer"], spec["decoder"]])
    if model["type"] not in ("Unigram", "BPE") or model.get("end_of_word_suffix") or bytewise or kinds - _AT_BLANKS:
        fault = "only a Unigram or BPE tokenizer of characters that splits text at blanks can be transliterated"
        raise InputError(f"{name}: {fault}. Train one by train_tokenizer (--vocabulary train), or take XLM-R's.")
    unigram = model["type"] == "Unigram"
    vocabulary = {piece: i for i, (piece, _) in enumerate(model["vocab"])} if unigram else dict(model["vocab"])
    letter = re.compile(f"[{chr(LETTERS[0])}-{chr(LETTERS[-1])}]")
    if taken := next(filter(letter.search, vocabulary), None):
        raise InputError(f"{name}: {taken!r} is in the vocabulary, so it was extended. Give the original tokenizer.")
    spec["normalizer"] = _normalizer(tokenizer.backend_tokenizer.normalizer, spec["normalizer"], alphabet)
    special = {token["content"] for token in spec["added_tokens"]}
    special.add(model["vocab"][model["unk_id"]][0] if unigram else model["unk_token"])
    counterparts: list[tuple[int, int]] = []
    for piece, natural in sorted(vocabulary.items(), key=lambda item: item[1]):
        if piece in special or (derived := alphabet.translate(piece)) == piece:
            continue
        counterparts.append((natural, len(vocabulary)))
        vocabulary[derived] = len(vocabulary)
        if unigram:
            model["vocab"].append([derived, model["vocab"][natural][1]])
    if not unigram:
        model["vocab"] = vocabulary
        # Right after its original, so that merges apply in the same order in words that keep some characters.
        merges: list[list[str]] = []
        for merge in model["merges"]:
            merges.append(merge)
            if (copied := list(map(alphabet.translate, merge))) != merge:
                merges.append(copied)
        model["merges"] = merges
    return rebuild(tokenizer, spec), np.array(counterparts, dtype=np.int64).reshape(-1, 2)


def _normalizer(natural: normalizers.Normalizer | None, spec: Spec | None, alphabet: Alphabet) -> Spec | None:
    """Return the spec of a normalizer, followed by a map of the letters whose characters it changes."""
    if natural is None:
        return None
    mapping = {}
    for character in alphabet.characters:
        normal = normalized_character(natural, character)
        if normal != character:
            mapping[alphabet.translate(character)] = alphabet.translate(normal)
    if not mapping:
        return spec
    charsmap = base64.b64encode(build_charsmap(mapping)).decode()
    return {"type": "Sequence", "normalizers": [spec, {"type": "Precompiled", "precompiled_charsmap": charsmap}]}


def tokenizer_spec(tokenizer: PreTrainedTokenizerBase) -> Spec:
    """Return the content of `tokenizer.json`, with the added tokens in the model's vocabulary."""
    check_fast(tokenizer, "get other pieces")
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    # Both are left over from the last call.
    spec["truncation"] = spec["padding"] = None
    model = spec["model"]
    vocabulary = model["vocab"]
    for token in sorted(spec["added_tokens"], key=lambda token: token["id"]):
        if token["id"] < len(vocabulary):
            continue
        if token["id"] > len(vocabulary):
            place = f"the id {len(vocabulary)}, before {token['content']}"
            raise InputError(f"{tokenizer_name(tokenizer)}: no token has {place}")
        # The model never uses the score of an added token, but a new lowest score would change the others.
        if isinstance(vocabulary, list):
            vocabulary.append([token["content"], min(score for _, score in vocabulary)])
        else:
            vocabulary[token["content"]] = token["id"]
    return spec


def rebuild(tokenizer: PreTrainedTokenizerBase, spec: Spec) -> PreTrainedTokenizerFast:
    """Make a tokenizer from `spec` with the special tokens and settings of `tokenizer`."""
    by_content = {token.content: token for token in tokenizer.added_tokens_decoder.values()}
    roles = {role: by_content.get(str(token), str(token)) for role, token in tokenizer.special_tokens_map.items()}
    role_names = set(map(str, roles.values()))
    # Not of the model's own class, which replaces normalizer and pre-tokenizer when it is loaded.
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(spec)),
        **roles,
        extra_special_tokens=[by_content[token] for token in tokenizer.all_special_tokens if token not in role_names],
        model_max_length=tokenizer.model_max_length,
        model_input_names=list(tokenizer.model_input_names),
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
    )


def _usage(tokenizer: Tokenizer, texts: Iterable[str], size: int) -> tuple[np.ndarray, set[str]]:
    """Count each piece, int64 (size,), and collect the characters of the normalized texts."""
    counts = np.zeros(size, dtype=np.int64)
    characters: set[str] = set()
    normalize = tokenizer.normalizer.normalize_str if tokenizer.normalizer is not None else str
    stream = iter(texts)
    while batch := list(itertools.islice(stream, _TEXTS_A_BATCH)):
        for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            np.add.at(counts, encoding.ids, 1)
        characters.update(*map(normalize, batch))
    return counts, {c for c in characters if not c.isspace()}


def _renumber(processor: Spec | None, new_id: Callable[[int], int]) -> None:
    if processor is None:
        return
    for inner in processor.get("processors", []):
        _renumber(inner, new_id)
    for token in processor.get("special_tokens", {}).values():
        token["ids"] = list(map(new_id, token["ids"]))
    for role in ("cls", "sep"):
        if role in processor:
            processor[role][1] = new_id(processor[role][1])
