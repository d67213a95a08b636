"""Encode words as token ids, with the token span of every word."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from datasets import Column, Dataset
from tokenizers import Encoding, processors
from tokenizers.normalizers import Prepend
from tokenizers.normalizers import Sequence as Normalizers
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.cache import digest, map_rows
from hf_xalign.data.arrow import language_ids, mapped_files, release_pages
from hf_xalign.data.parallel import check_columns, check_dataset
from hf_xalign.data.words import clean_text, lettered_words
from hf_xalign.errors import InputError

logger = logging.getLogger(__name__)

# XLM-R puts a lone word-boundary mark before some words; it is not part of the word. Byte-level pieces have another.
_BOUNDARY, _BYTES_BOUNDARY = "▁", "Ġ"
# Words with an unknown piece: share of a language's words that is warned of, share that is refused, sampled texts.
_WARNED_SHARE, _REFUSED_SHARE, _SAMPLE = 0.02, 0.30, 1000
_warned: WeakKeyDictionary[PreTrainedTokenizerBase, set[str | None]] = WeakKeyDictionary()
_AT_ONCE = 200  # sentences that are encoded at once
# Model types whose position numbers begin after the padding token's id.
_OFFSET = {
    *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod", "camembert", "mpnet", "ibert"),
    *("luke", "longformer", "data2vec-text", "lilt", "markuplm", "esm"),
}
State = dict[str, Any]  # arguments of a tokenizer, or what one of its parts saves


class EncodedWords(NamedTuple):
    """Token ids of each sentence, and the token spans `[start, end)` of its words, int32 (words, 2).

    A word without subwords, or cut by truncation even in part, has the empty span (0, 0).
    """

    input_ids: list[list[int]]
    spans: list[np.ndarray]


def check_fast(tokenizer: PreTrainedTokenizerBase, task: str) -> None:
    """Raise an InputError for a tokenizer that is not a fast one and so cannot do a task."""
    if not getattr(tokenizer, "is_fast", False):
        name = type(tokenizer).__name__
        raise InputError(f"{name} is not a fast tokenizer, so it cannot {task}. Load one by AutoTokenizer.")


def tokenizer_name(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the folder or Hub id of a tokenizer, or its class, for messages."""
    return tokenizer.name_or_path or type(tokenizer).__name__


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a hash of what determines token ids: all of a fast tokenizer, the vocabulary of another."""
    if not tokenizer.is_fast:
        return digest(type(tokenizer).__name__, tokenizer.get_vocab(), tokenizer.model_max_length)
    settings = json.loads(word_tokenizer(tokenizer).backend_tokenizer.to_str())
    del settings["truncation"], settings["padding"]  # left over from the last call of the tokenizer
    return digest(settings, tokenizer.model_max_length)


def word_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return the tokenizer to use on text that is already split into words, a copy if it needs other settings."""
    check_fast(tokenizer, "tell which tokens a word has")
    backend = tokenizer.backend_tokenizer
    running = backend.encode("a a", add_special_tokens=False).tokens
    split = backend.encode(["a", "a"], is_pretokenized=True, add_special_tokens=False).tokens
    # Many tokenizers mark the start of a word by the blank before it (byte-level ones, Gemma's). Split text has no
    # blanks, so these have to put one before each word.
    if running != split:
        tokenizer = copy.deepcopy(tokenizer)
        backend = tokenizer.backend_tokenizer
        backend.normalizer = Normalizers([Prepend(" "), *([backend.normalizer] if backend.normalizer else [])])
        tokenizer.add_prefix_space = True
    return tokenizer


def tokenize_words(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sequence[str]], max_length: int | None = None
) -> EncodedWords:
    """Encode sentences that are already split into words, by a [`word_tokenizer`].

    `max_length` counts special tokens too; it is the tokenizer's `model_max_length` by default.
    """
    limit = token_limit(tokenizer, max_length)
    ids, spans = [], []
    pre_tokenizer: Any = tokenizer.backend_tokenizer.pre_tokenizer
    byte_level = pre_tokenizer is not None and b"ByteLevel" in pre_tokenizer.__getstate__()
    boundary = _BYTES_BOUNDARY if byte_level else _BOUNDARY
    for encoding, words in _encodings(tokenizer, sentences, limit):
        ids.append(encoding.ids)
        span = np.zeros((len(words), 2), dtype=np.int32)
        for position, (word, token) in enumerate(zip(encoding.word_ids, encoding.tokens, strict=True)):
            if word is None or (token == boundary and span[word, 1] == 0 and words[word] != _BOUNDARY):
                continue
            if span[word, 1] == 0:
                span[word, 0] = position
            span[word, 1] = position + 1
        # A word that is cut in part would be represented by its first tokens alone.
        for overflow in encoding.overflowing:
            span[[word for word in overflow.word_ids if word is not None]] = 0
        spans.append(span)
    return EncodedWords(ids, spans)


def token_limit(tokenizer: PreTrainedTokenizerBase, max_length: int | None) -> int:
    """Return the largest number of tokens of a sentence, including special tokens and prompt."""
    limit = tokenizer.model_max_length if max_length is None else min(max_length, tokenizer.model_max_length)
    # If no token of text were left, `tokenizers` would cut nothing.
    if limit <= (added := sum(map(len, special_frame(tokenizer)))):
        raise InputError(f"max_length={limit}: special tokens and prompt take {added}. Raise it or shorten the prompt")
    return limit


def _encodings(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sequence[str]], limit: int
) -> Iterator[tuple[Encoding, Sequence[str]]]:
    """Yield encodings with their sentences, made a few at a time: an encoding takes about 100 bytes for each token."""
    limited: State = {"truncation": True, "max_length": limit} if limit < 10**9 else {}
    for start in range(0, len(sentences), _AT_ONCE):
        chunk = sentences[start : start + _AT_ONCE]
        cleaned = [list(map(clean_text, words)) for words in chunk]
        yield from zip(tokenizer(cleaned, is_split_into_words=True, **limited).encodings, chunk, strict=True)


def first_position(config: PretrainedConfig) -> int:
    """Return the `position_ids` value of a text's first token."""
    return config.pad_token_id + 1 if config.model_type in _OFFSET else 0


def position_limit(config: PretrainedConfig, max_length: int | None = None) -> int:
    """Return the encoder's largest number of tokens of a sentence, or `max_length` if that is smaller."""
    # By the encoder's config, because many tokenizers lack `model_max_length`.
    # Positions of T5 and XLNet (-1) are relative and unlimited; both were trained on 512 tokens.
    positions = getattr(config, "max_position_embeddings", -1)
    limit = (positions if positions > 0 else 512) - first_position(config)
    return limit if max_length is None else min(max_length, limit)


def special_frame(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the tokens that the tokenizer puts before and after a sentence, such as [CLS], a prompt, and [SEP]."""
    encoded = tokenizer("a")
    ids = encoded.input_ids
    if tokenizer.is_fast:
        special = [sequence is None for sequence in encoded.sequence_ids()]
    else:
        special = [token in tokenizer.all_special_ids and token != tokenizer.unk_token_id for token in ids]
    text = [k for k, is_special in enumerate(special) if not is_special]
    return (ids[: text[0]], ids[text[-1] + 1 :]) if text else (ids, [])


class SentenceFrame(NamedTuple):
    """Special tokens that the tokenizer puts around one sentence or two."""

    before: list[int]  # [CLS] or <s>
    between: list[int]  # [SEP] or </s></s>
    after: list[int]  # [SEP] or </s>


def sentence_frame(tokenizer: PreTrainedTokenizerBase) -> SentenceFrame:
    """Return the tokenizer's special tokens; an InputError is raised if a pair starts or ends unlike one sentence."""
    before, after = special_frame(tokenizer)
    text = tokenizer("a", add_special_tokens=False).input_ids
    pair = tokenizer("a", "a").input_ids
    head, tail = len(before) + len(text), len(text) + len(after)
    frame = SentenceFrame(before, pair[head : len(pair) - tail], after)
    if not frame.between or pair != [*before, *text, *frame.between, *text, *after]:
        tokens = tokenizer.convert_ids_to_tokens(pair)
        fault = f"encodes two sentences as {tokens}, without a separator, or with other tokens at the ends than one"
        raise InputError(f"{tokenizer_name(tokenizer)} {fault}. Take the model's own tokenizer.")
    return frame


def check_vocabulary(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str] | Sequence[Sequence[str]] | Column,
    language: str | None,
    what: str,
) -> None:
    """Warn of text in one language, or refuse it, if the tokenizer writes many of its words with unknown pieces.

    The warning comes from 2% of the words on, once for each tokenizer and language. `texts` are strings or lists of
    words, of which at most 1,000 are sampled. From 30% on, an InputError is raised.
    """
    rows = np.sort(np.random.default_rng(0).permutation(len(texts))[:_SAMPLE]).tolist()
    some = texts[rows] if isinstance(texts, Column) else [texts[row] for row in rows]
    counts = Counter[str]()
    for text in filter(None, some):
        counts.update(lettered_words(clean_text(text) if isinstance(text, str) else text))
    # Tokenizers raise on an empty list, so an empty string comes first.
    ids = token_ids(tokenizer, ["", *counts])[1:]
    lost = Counter[str]()
    for (word, times), pieces in zip(counts.items(), ids):
        if not pieces or tokenizer.unk_token_id in pieces:
            lost[word] = times
    share = lost.total() / max(counts.total(), 1)
    if share < _WARNED_SHARE:
        return
    message = (
        f"{what}: {share:.0%} of the words in {language or 'this text'} have a piece that the tokenizer does not know "
        f"({', '.join(word for word, _ in lost.most_common(3))}). Add pieces by: hf-xalign extend-vocabulary MODEL "
        f"{language or 'LANG'}=FILE --output FOLDER"
    )
    if share >= _REFUSED_SHARE:
        raise InputError(f"{message}. Or does the model's folder lack its own tokenizer?")
    if language not in (said := _warned.setdefault(tokenizer, set())):
        said.add(language)
        logger.warning("%s", message)


def check_pieces(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    what: str,
    pivot_tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Apply [`check_vocabulary`] to each language of both sides of sentence pairs, by their text, or else words.

    `pivot_tokenizer` is the tokenizer of the target side, if it differs.
    """
    dataset = dataset.with_format(None)
    for side, side_tokenizer in (("source", tokenizer), ("target", pivot_tokenizer or tokenizer)):
        code = f"{side}_lang"
        names: Sequence[str | None] = [None]
        languages = np.zeros(len(dataset))
        if code in dataset.column_names:
            languages, names = language_ids(dataset, code)
        column = side if side in dataset.column_names else f"{side}_words"
        for number, language in enumerate(names):
            rows = np.random.default_rng(0).permutation(np.flatnonzero(languages == number))
            sample = dataset[column][np.sort(rows[:_SAMPLE]).tolist()]
            check_vocabulary(side_tokenizer, sample, language, f"{what}, {side}")


# Encoders whose tokenizer was said not to fit.
_MISFITS: WeakSet[PreTrainedModel] = WeakSet()
# Special tokens that tokenizers and masking insert; other special tokens occur only if the text spells them out.
_PUT_IN = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")


def check_embeddings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise an InputError if the model is no encoder of the tokenizer's ids, or lacks the embedding of a token."""
    # BART, for example, would return vectors of its decoder.
    config, cause = model.config, ""
    if getattr(config, "is_encoder_decoder", False) and hasattr(model, "decoder"):
        cause = "has a decoder. Take an encoder, or the encoder of T5's family alone, such as MT5EncoderModel."
    elif config.model_type == "xlm" and config.use_lang_emb and config.n_langs > 1:
        cause = "adds the embedding of a language only if it is told. Take an encoder without, such as XLM-R."
    if cause:
        raise InputError(f"this model of type {config.model_type} {cause}")
    put_in = {getattr(tokenizer, f"{name}_token_id", None) for name in _PUT_IN}
    # Such as the image token of a text model's tokenizer, which needs no embedding.
    idle = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special} - put_in
    rows = len(cast(Any, model).get_input_embeddings().weight)
    _warn_of_misfit(model, tokenizer, rows)
    if lacking := set(range(rows, len(tokenizer))) - idle:
        fault = f"has ids up to {max(lacking)}, but the encoder has only {rows} word embeddings"
        advice = "Take the encoder's own, or call model.resize_token_embeddings(len(tokenizer)) first"
        raise InputError(f"the tokenizer {tokenizer_name(tokenizer)} {fault}. {advice}")


def _warn_of_misfit(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """Warn once of a tokenizer of fewer than half of the encoder's tokens, or whose padding moves positions."""
    tokens, config = len(tokenizer), model.config
    signs = [f"it has {tokens:,} tokens for {rows:,} word embeddings"] if 2 * tokens < rows else []
    # E5 and MiniLM have BERT's padding in their config and XLM-R's tokenizer, but their positions do not depend on it.
    if config.model_type in _OFFSET and tokenizer.pad_token_id not in (None, config.pad_token_id):
        signs.append(f"its padding token has the id {tokenizer.pad_token_id}, the encoder's {config.pad_token_id}")
    if signs and model not in _MISFITS:
        _MISFITS.add(model)
        name = tokenizer_name(tokenizer)
        logger.warning("the tokenizer %s may be another model's: %s. Take the encoder's.", name, " and ".join(signs))


def token_ids(tokenizer: PreTrainedTokenizerBase, cells: Sequence[str] | Sequence[list[str]]) -> list[list[int]]:
    """Encode texts or word lists in NFC, without special tokens or truncation."""
    cleaned: Any = [clean_text(cell) if isinstance(cell, str) else list(map(clean_text, cell)) for cell in cells]
    return tokenizer(
        cleaned,
        is_split_into_words=isinstance(cleaned[0], list),
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    ).input_ids


def _encode_subwords(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sequence[str]], max_length: int | None
) -> EncodedWords:
    """Encode sentences whose "words" are the tokenizer's own tokens (subword links)."""
    limit = token_limit(tokenizer, max_length)
    before, after = special_frame(tokenizer)
    room = limit - len(before) - len(after)
    ids, spans = [], []
    for pieces in sentences:
        fitting = cast(list[int], tokenizer.convert_tokens_to_ids(list(pieces[:room])))
        span = np.zeros((len(pieces), 2), dtype=np.int32)
        span[: len(fitting), 0] = np.arange(len(before), len(before) + len(fitting))
        span[: len(fitting), 1] = span[: len(fitting), 0] + 1
        ids.append([*before, *fitting, *after])
        spans.append(span)
    return EncodedWords(ids, spans)


class _PairEncoder:
    """Encode a batch of word-aligned pairs into the columns of [`encode_pairs`]; no pair is dropped."""

    def __init__(self, dataset: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int | None, subwords: bool):
        needed = ("source_words", "target_words", "links", "source_lang")
        check_columns(dataset, needed, "the dataset", "Run hf_xalign.links.align_words on it first.")
        # With subword links, the tokenizer knows all "words".
        if not subwords:
            check_pieces(dataset, tokenizer, "the dataset")
        self.tokenizer = word_tokenizer(tokenizer)
        self.max_length = max_length
        self.subwords = subwords
        self.files = frozenset[str]()  # mapped files whose pages are released after each batch
        # Raise it when other spans are given: the cache of encoded rows depends on it.
        self.version = 2

    def __call__(self, batch: dict[str, list], rows: Sequence[int] | None = None) -> dict[str, list]:
        """Encode the pairs; errors name a pair by its number in `rows`."""
        encode = _encode_subwords if self.subwords else tokenize_words
        columns: dict[str, list] = {"links": [], "source_lang": batch["source_lang"]}
        spans = {}
        for side in ("source", "target"):
            columns[f"{side}_ids"], spans[side] = encode(self.tokenizer, batch[f"{side}_words"], self.max_length)
            columns[f"{side}_starts"] = [span[:, 0] for span in spans[side]]
            columns[f"{side}_ends"] = [span[:, 1] for span in spans[side]]
        for k, (row_links, source, target) in enumerate(zip(batch["links"], *spans.values(), strict=True)):
            pairs = np.asarray(row_links, dtype=np.int64).reshape(len(row_links), 2)
            if len(pairs) and (pairs.min() < 0 or (pairs.max(axis=0) >= (len(source), len(target))).any()):
                where = batch["source_words"][k] if rows is None else f"row {rows[k]}"
                counts = f"{len(source)} source and {len(target)} target words; links {row_links}"
                raise InputError(f"{where}: a link points outside the sentence ({counts}). Align the words again.")
            alive = (source[pairs[:, 0], 1] > 0) & (target[pairs[:, 1], 1] > 0)
            columns["links"].append(pairs[alive].tolist())
        columns["length"] = list(map(max, map(len, columns["source_ids"]), map(len, columns["target_ids"])))
        release_pages(self.files)
        return columns


def encode_when_read(
    dataset: Dataset, tokenizer: PreTrainedTokenizerBase, *, max_length: int | None = None, subword_links: bool = False
) -> Dataset:
    """Return the dataset with a transform that encodes rows, as [`encode_pairs`] does, whenever they are read.

    Nothing is computed or stored in advance, so training on a corpus of any size begins at once. A pair that loses all
    its links by truncation is kept, without links.
    """
    encode = _PairEncoder(dataset, tokenizer, max_length, subword_links)
    encode.files = mapped_files(dataset)
    return dataset.with_transform(encode)


def encode_pairs(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int | None = None,
    subword_links: bool = False,
    keep_unlinked: bool = False,
) -> Dataset:
    """Encode a word-aligned dataset for training.

    A link is dropped if either of its words has no subword or was cut by truncation. A pair without links is dropped
    too, unless `keep_unlinked`; the log says how many were.

    Args:
        dataset: columns `source_words`, `target_words`, `links` and `source_lang`, see [`align_words`].
        tokenizer: a fast tokenizer.
        max_length: largest number of tokens on a side, including special tokens; the tokenizer's `model_max_length` by
            default.
        subword_links: the `*_words` are this tokenizer's tokens, and links connect tokens.
        keep_unlinked: keep pairs without links, for losses on sentences.

    Returns:
        A memory-mapped dataset with these columns: `source_ids` and `target_ids` (token ids); `source_starts`,
        `source_ends`, `target_starts` and `target_ends` (token span of each word; start == end if it has no token);
        `links` ((i, j) word indices); `source_lang`; `length` (tokens of the longer side).

    Raises:
        InputError: a column is missing, the tokenizer has no `word_ids`, a link points outside its sentence, or no
            pair keeps a link.

    Example:
        >>> from datasets import Dataset
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import PreTrainedTokenizerFast
        >>> backend = Tokenizer(models.WordPiece({"[UNK]": 0, "off": 1, "##en": 2, "open": 3}))
        >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
        >>> pair = {"source_words": ["offen"], "target_words": ["open"], "links": [[0, 0]], "source_lang": "de"}
        >>> row = encode_pairs(Dataset.from_list([pair]), tokenizer)[0]
        >>> row["source_ids"], row["source_starts"], row["source_ends"], row["links"]
        ([1, 2], [0], [2], [[0, 0]])
    """
    dataset = check_dataset(dataset, "the dataset")
    encode = _PairEncoder(dataset, tokenizer, max_length, subword_links)

    def encode_batch(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        columns = encode(batch, rows)
        keep = [row_links or keep_unlinked for row_links in columns["links"]]
        return {name: list(compress(values, keep)) for name, values in columns.items()}

    encoded = map_rows(
        dataset, encode_batch, with_indices=True, remove_columns=dataset.column_names, desc="Encoding pairs"
    )
    limit = token_limit(tokenizer, max_length)
    if not len(encoded):
        most = f"after truncation to {limit:,} tokens a side"
        raise InputError(f"no pair keeps a word link {most}. Split long text into sentences, or raise max_length.")
    if dropped := len(dataset) - len(encoded):
        logger.info("%d of %d pairs dropped: no link left in %d tokens a side", dropped, len(dataset), limit)
    return encoded


_MARK = "[prompt] "  # begins the name of the prompt among the special tokens, where it is saved with them


def prompt_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the prompt of a tokenizer, "" if it has none."""
    names = _template(tokenizer)[1]["special_tokens"]
    return next((name.removeprefix(_MARK) for name in names if name.startswith(_MARK)), "")


def set_prompt(tokenizer: PreTrainedTokenizerBase, prompt: str) -> PreTrainedTokenizerBase:
    """Make a fast tokenizer put a prompt before every text, in place of an earlier prompt, and return the tokenizer.

    The token ids are those of `prompt + text`. In a pair of texts, only the first gets the prompt. The prompt ""
    removes it. `save_pretrained` saves it with the tokenizer.

    Raises:
        InputError: the tokenizer is not a fast one, or splits a text differently after the prompt than alone.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import PreTrainedTokenizerFast
        >>> backend = Tokenizer(models.WordLevel({"[UNK]": 0, "query": 1, ":": 2, "cat": 3}, unk_token="[UNK]"))
        >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> tokenizer = set_prompt(PreTrainedTokenizerFast(tokenizer_object=backend), "query: ")
        >>> tokenizer("cat").input_ids, prompt_of(tokenizer)
        ([1, 2, 3], 'query: ')
    """
    states, template = _template(tokenizer)
    tokens = template["special_tokens"]
    for name in [name for name in tokens if name.startswith(_MARK)]:
        del tokens[name]
        for sequence in (template["single"], template["pair"]):
            sequence.remove(_special(name, 0))
    if prompt:
        ids, text, both = (tokenizer(t, add_special_tokens=False).input_ids for t in (prompt, "a", f"{prompt}a"))
        if both != [*ids, *text]:
            # Byte-level BPE, as ModernBERT's, joins the blank to the next word.
            advice = "Put" if prompt[-1].isspace() else "End it with a blank, or put"
            fault = f"splits a text differently after the prompt than alone ({tokenizer.convert_ids_to_tokens(both)})"
            raise InputError(f"prompt={prompt!r}: {tokenizer_name(tokenizer)} {fault}. {advice} it into the text")
        name = _MARK + prompt
        for sequence in (template["single"], template["pair"]):
            sequence.insert(sequence.index({"Sequence": {"id": "A", "type_id": 0}}), _special(name, 0))
        tokens[name] = {"id": name, "ids": ids, "tokens": tokenizer.convert_ids_to_tokens(ids)}
    state = states[0] if len(states) == 1 else {"type": "Sequence", "processors": states}
    made: Any = processors.Sequence([]) if len(states) > 1 else processors.TemplateProcessing("$A", "$A $B", [])
    made.__setstate__(json.dumps(state).encode())
    tokenizer.backend_tokenizer.post_processor = made
    return tokenizer


@contextlib.contextmanager
def prompted(tokenizer: PreTrainedTokenizerBase, prompt: str | None) -> Iterator[None]:
    """Set a tokenizer's prompt within a `with` block; None keeps its own."""
    if prompt is None:
        yield
        return
    before = tokenizer.backend_tokenizer.post_processor if tokenizer.is_fast else None
    set_prompt(tokenizer, prompt)
    try:
        yield
    finally:
        tokenizer.backend_tokenizer.post_processor = before


def _template(tokenizer: PreTrainedTokenizerBase) -> tuple[list[State], State]:
    """Return the states of a tokenizer's post-processors, and the template among them, made if there is none."""
    check_fast(tokenizer, "have a prompt")
    processor: Any = tokenizer.backend_tokenizer.post_processor
    state: State = json.loads(processor.__getstate__()) if processor else {"processors": []}
    states: list[State] = state.get("processors", [state])
    if template := next((stage for stage in states if stage["type"] == "TemplateProcessing"), None):
        return states, template
    template = State({"type": "TemplateProcessing", "special_tokens": {}})
    for name, texts in (("single", ["a"]), ("pair", ["a", "a"])):
        template_items = template[name] = list[Any]()
        [encoding] = tokenizer(*texts).encodings
        for token, number, type_id, text in zip(
            encoding.tokens, encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True
        ):
            if text is None:
                template["special_tokens"][token] = {"id": token, "ids": [number], "tokens": [token]}
                template_items.append(_special(token, type_id))
            elif (item := {"Sequence": {"id": "AB"[text], "type_id": type_id}}) not in template_items[-1:]:
                template_items.append(item)
    return [*(stage for stage in states if not stage["type"].startswith(("Bert", "Roberta"))), template], template


def _special(name: str, type_id: int) -> State:
    return {"SpecialToken": {"id": name, "type_id": type_id}}
