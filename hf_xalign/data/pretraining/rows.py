"""Monolingual text, and sentence pairs, to the rows that a masked language model is pre-trained on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import datasets
import numpy as np
from datasets import Dataset, Features, List, Value
from datasets.fingerprint import Hasher
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hf_xalign.data.encoding import check_vocabulary, special_frame, word_tokenizer
from hf_xalign.data.limits import position_limit
from hf_xalign.data.parallel import COLUMNS
from hf_xalign.data.pretraining.masking import masking_vocabulary
from hf_xalign.data.sentence_pairs import sentence_frame
from hf_xalign.errors import InputError

logger = logging.getLogger(__name__)

_CHECKED_ROWS = 1000  # whose text must be known to the tokenizer
_ROW = Features(
    {
        "input_ids": List(Value("int32")),
        "length": Value("int32"),
        "languages": List(Value("string")),
        "parts": List(Value("int32")),
        "source_lang": Value("string"),
    }
)


class TextCounts(NamedTuple):
    """What became of one language's text, or of one language pair's.

    Attributes:
        sentences: sentences, or pairs, that there were.
        left_out: those without a token, and pairs with a side that is too long.
        cut: sentences longer than a row, which go on in the next one.
        rows: rows that were made of the rest.
        tokens: tokens in these rows, special ones left aside.
    """

    sentences: int
    left_out: int
    cut: int
    rows: int
    tokens: int


class PretrainingRows(NamedTuple):
    """Rows to train on, and what they were made of.

    Attributes:
        dataset: see [`encode_pretraining`].
        counts: by language code, and by `<first>+<second>` for rows of sentence pairs.
    """

    dataset: Dataset
    counts: dict[str, TextCounts]


def encode_pretraining(
    corpora: Mapping[str, Dataset],
    tokenizer: PreTrainedTokenizerBase,
    config: PreTrainedConfig,
    *,
    block_size: int = 512,
    pairs: Dataset | None = None,
    pair_share: float = 0.25,
    seed: int = 0,
    num_proc: int | None = None,
) -> PretrainingRows:
    """Encode and pack text (ALIGN-MLM, appendix G.3).

    *MLM rows* are of one language: sentences one after another, in their order and without a separator between them,
    until the next would exceed `block_size`; the tokenizer's special tokens stand before and behind the row, as in
    RoBERTa's full sentences. The last row of a language may be short. A sentence longer than a row is cut, and the
    rest goes on in the next row (the paper throws such sentences away).

    *TLM rows* are of sentence pairs, packed likewise: the sentences of the pivot (`target`, the paper's original
    language) first, then those of `source`, as the tokenizer frames two sentences, at most half a row each. Positions
    run on. (The paper pads each half to 256 tokens; here padding comes at the end alone, so that there is less.) Pairs
    with a side longer than its half are left out, as in the paper.

    The rows are the same for any `num_proc`.

    Args:
        corpora: by language code, a column `words` (lists of str), or `text`, a sentence (or paragraph) a row; where
            there are both, `words`.
        tokenizer: the model's fast tokenizer.
        config: the encoder's.
        block_size: tokens a row at most, special ones included.
        pairs: columns `source`, `target`, `source_lang`, `target_lang`; None for no TLM rows. Languages that are no
            corpus's are allowed.
        pair_share: TLM rows by MLM rows; 0.25 in the paper. Where there are more, they are drawn without replacement;
            where there are fewer, all are taken, and the log says so.
        seed: of that draw.
        num_proc: processes of `datasets.map`.

    Returns:
        The counts, and a dataset, first the rows of each corpus, then those of pairs:

        - `input_ids`: list of int32, special tokens included; `length`: their number;
        - `languages`: one code, or two; `parts`: how many tokens are of each, special ones with the part before them;
        - `source_lang`: the code, or `<first>+<second>`, which the sampler balances by;
        - `example`: the row's number, which the masks are drawn by.

    Raises:
        InputError: no text in a corpus, or none that the tokenizer knows; a missing column or an empty cell;
            `block_size` is too small or more than the encoder takes; a tokenizer without a mask or padding token, or
            for pairs without a separator; a share that is none.
    """
    if not corpora:
        raise InputError("no text to train on: name at least one corpus")
    check_block_size(block_size, tokenizer, config, pairs=pairs is not None)
    counts: dict[str, TextCounts] = {}
    parts = []
    for language, corpus in corpora.items():
        found, counts[language] = _monolingual(corpus, tokenizer, language, block_size, num_proc)
        parts.append(found)
    if pairs is not None:
        if pair_share <= 0:
            raise InputError(f"pair_share={pair_share}: above 0 (the paper's is 0.25), or give no pairs")
        wanted = max(1, round(pair_share * sum(map(len, parts))))
        found, pair_counts = _bilingual(pairs, tokenizer, block_size, wanted, seed, num_proc)
        parts.append(found)
        counts |= pair_counts
    rows = datasets.concatenate_datasets(parts)
    for name, n in counts.items():
        told = f"{n.rows:,} rows, {n.tokens:,} tokens, of {n.sentences:,} sentences"
        logger.info("%s: %s (%d left out, %d cut)", name, told, n.left_out, n.cut)
    return PretrainingRows(rows.add_column("example", np.arange(len(rows))), counts)


def check_block_size(
    block_size: int, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, *, pairs: bool = False
) -> None:
    """Refuse what no rows can be made with, before any text is read.

    Args:
        block_size: tokens a row at most.
        tokenizer: the model's.
        config: the encoder's.
        pairs: whether there are to be rows of sentence pairs.

    Raises:
        InputError: see [`encode_pretraining`].
    """
    masking_vocabulary(tokenizer)
    if tokenizer.pad_token_id is None:
        raise InputError("the tokenizer has no padding token: set tokenizer.pad_token to one of its tokens")
    if block_size > (limit := position_limit(config)):
        raise InputError(
            f"block_size={block_size}: this encoder ({config.model_type}) takes {limit} tokens with special ones; set "
            "block_size to that or less"
        )
    specials = sum(map(len, special_frame(tokenizer)))
    least = specials + 1
    if pairs:
        least = max(least, sentence_frame(tokenizer).pair_specials + 2)
    if block_size < least:
        raise InputError(
            f"block_size={block_size}: {least} is the least that has room for text beside the special tokens"
        )


def pack(sizes: np.ndarray, room: int) -> np.ndarray:
    """Where rows begin and end when sentences, in their order, go into a row until one would not fit.

    Args:
        sizes: int64 (n, sides), tokens of each sentence, or of each side of a pair; at most `room`.
        room: tokens of a row, for each side.

    Returns:
        int64 (rows + 1,): row k holds the sentences `bounds[k]` to `bounds[k + 1] - 1`.
    """
    ends = [np.concatenate([[0], np.cumsum(side)]) for side in sizes.T]
    bounds = [0]
    while (start := bounds[-1]) < len(sizes):
        bounds.append(min(int(np.searchsorted(end, end[start] + room, side="right")) - 1 for end in ends))
    return np.array(bounds, dtype=np.int64)


def _monolingual(
    corpus: Dataset, tokenizer: PreTrainedTokenizerBase, language: str, block_size: int, num_proc: int | None
) -> tuple[Dataset, TextCounts]:
    column = next((name for name in ("words", "text") if name in corpus.column_names), None)
    if column is None:
        raise InputError(
            f"the corpus of {language} has no column words or text (it has {', '.join(corpus.column_names)}): load it "
            "by hf_xalign.data.monolingual.load_monolingual, or rename its column"
        )
    by_words = column == "words"
    encoder = word_tokenizer(tokenizer) if by_words else tokenizer
    before, after = special_frame(tokenizer)
    room = block_size - len(before) - len(after)
    if not len(corpus):
        raise InputError(f"the corpus of {language} has no rows")
    first = [cell for cell in corpus[: min(_CHECKED_ROWS, len(corpus))][column] if cell]
    if first:
        texts = [" ".join(cell) for cell in first] if by_words else first
        check_vocabulary(tokenizer, texts, f"the corpus of {language}")

    def encode(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        _no_empty_cells(batch[column], rows, f"the corpus of {language}", column)
        texts = [text for text in batch[column] if text]
        pieces, numbers = [], []
        for ids in _token_ids(encoder, texts, by_words):
            for number, start in enumerate(range(0, len(ids), room)):
                pieces.append(ids[start : start + room])
                numbers.append(number)
        return {"ids_0": pieces, "size_0": [len(piece) for piece in pieces], "number": numbers}

    encoded = corpus.select_columns([column]).map(
        encode,
        batched=True,
        with_indices=True,
        num_proc=num_proc,
        remove_columns=[column],
        features=Features({"ids_0": List(Value("int32")), "size_0": Value("int32"), "number": Value("int32")}),
        desc=f"Encoding {language}",
    )
    if not len(encoded):
        raise InputError(f"the corpus of {language} has no text in its {len(corpus)} rows")
    numbers = _array(encoded, "number")
    rows = _rows(encoded, room, [before, after], [language], num_proc)
    return rows, TextCounts(
        sentences=len(corpus),
        left_out=len(corpus) - int((numbers == 0).sum()),
        cut=int((numbers == 1).sum()),
        rows=len(rows),
        tokens=int(_array(encoded, "size_0").sum()),
    )


def _bilingual(
    pairs: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    block_size: int,
    wanted: int,
    seed: int,
    num_proc: int | None,
) -> tuple[Dataset, dict[str, TextCounts]]:
    if missing := [column for column in COLUMNS if column not in pairs.column_names]:
        raise InputError(
            f"the sentence pairs have no column {', '.join(missing)} (they have {', '.join(pairs.column_names)}): "
            "load them by hf_xalign.data.load_parallel, or rename their columns"
        )
    if not len(pairs):
        raise InputError("there are no sentence pairs")
    frame = sentence_frame(tokenizer)
    room = (block_size - frame.pair_specials) // 2
    first = pairs[: min(_CHECKED_ROWS, len(pairs))]
    for side in ("target", "source"):
        if texts := [text for text in first[side] if text]:
            check_vocabulary(tokenizer, texts, f"the {side} column of the pairs")

    def encode(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        columns: dict[str, list] = {}
        for k, side in enumerate(("target", "source")):
            _no_empty_cells(batch[side], rows, "the sentence pairs", side)
            columns[f"ids_{k}"] = _token_ids(tokenizer, batch[side], False)
            columns[f"size_{k}"] = [len(ids) for ids in columns[f"ids_{k}"]]
        return columns

    encoded = pairs.select_columns(list(COLUMNS)).map(
        encode,
        batched=True,
        with_indices=True,
        num_proc=num_proc,
        remove_columns=["source", "target"],
        desc="Encoding sentence pairs",
    )
    sizes = np.stack([_array(encoded, f"size_{k}") for k in (0, 1)], axis=1)
    fits = ((sizes > 0) & (sizes <= room)).all(axis=1)
    languages = [_array(encoded, f"{side}_lang").astype(str) for side in ("target", "source")]
    names = np.strings.add(np.strings.add(languages[0], "+"), languages[1])
    parts, counts = [], {}
    for name in np.unique(names):
        (own,) = np.nonzero(names == name)
        left = own[np.take(fits, own)]
        counts[str(name)] = TextCounts(len(own), len(own) - len(left), cut=0, rows=0, tokens=0)
        if len(left):
            codes = [str(side[left[0]]) for side in languages]
            parts.append(_rows(encoded.select(left), room, list(frame), codes, num_proc))
    if not parts:
        raise InputError(
            f"none of the {len(pairs)} sentence pairs fits: each side may have 1 to {room} tokens with "
            f"block_size={block_size}"
        )
    rows = datasets.concatenate_datasets(parts)
    if len(rows) > wanted:
        rows = rows.select(np.sort(np.random.default_rng(seed).permutation(len(rows))[:wanted]))
    elif len(rows) < wanted:
        logger.warning("the sentence pairs give %d TLM rows, of %d that pair_share asks for", len(rows), wanted)
    kept = _array(rows, "source_lang")
    for name, n in counts.items():
        lengths = _array(rows, "length")[kept == name]
        counts[name] = n._replace(rows=len(lengths), tokens=int(lengths.sum()) - len(lengths) * frame.pair_specials)
    return rows, counts


def _rows(
    encoded: Dataset, room: int, frame: Sequence[list[int]], languages: list[str], num_proc: int | None
) -> Dataset:
    """Pack encoded sentences.

    A row is made by the batch that its first sentence is in, which reads on in the dataset where the row does. So
    neither the batches nor the processes change it.

    Args:
        encoded: `ids_0`, `size_0`, and for pairs `ids_1`, `size_1`.
        room: tokens a row at most, for each side.
        frame: the special tokens around the sides, one more than there are sides.
        languages: code of each side.
        num_proc: processes of `datasets.map`.
    """
    names = [f"ids_{k}" for k in range(len(languages))]
    bounds = pack(np.stack([_array(encoded, f"size_{k}") for k in range(len(languages))], axis=1), room)
    sentences = encoded.select_columns(names)

    def build(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        start, stop = rows[0], rows[-1] + 1
        # The rows that begin in this batch.
        lowest, highest = np.searchsorted(bounds[:-1], [start, stop])
        if highest > lowest and bounds[highest] > stop:
            more = sentences[stop : int(bounds[highest])]
            batch = {name: batch[name] + more[name] for name in names}
        ids, parts = [], []
        for k in range(lowest, highest):
            first, last = bounds[k] - start, bounds[k + 1] - start
            row, ends = list(frame[0]), []
            for name, behind in zip(names, frame[1:], strict=True):
                row += [token for sentence in batch[name][first:last] for token in sentence]
                row += behind
                ends.append(len(row))
            ids.append(row)
            parts.append(np.diff(ends, prepend=0))
        return {
            "input_ids": ids,
            "length": [len(row) for row in ids],
            "languages": [languages] * len(ids),
            "parts": parts,
            "source_lang": ["+".join(languages)] * len(ids),
        }

    return sentences.map(
        build,
        batched=True,
        with_indices=True,
        num_proc=num_proc,
        remove_columns=names,
        features=_ROW,
        # Of what the rows depend on. By default, all of a corpus in memory would be hashed, with the function above.
        new_fingerprint=Hasher.hash([sentences._fingerprint, room, frame, languages]),
        desc=f"Packing {'+'.join(languages)}",
    )


def _token_ids(tokenizer: PreTrainedTokenizerBase, texts: list, by_words: bool) -> list[list[int]]:
    """Token ids of each text, without special tokens."""
    if not texts:
        return []
    return tokenizer(
        texts,
        is_split_into_words=by_words,
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    ).input_ids


def _no_empty_cells(cells: list, rows: list[int], what: str, column: str) -> None:
    for row, cell in zip(rows, cells, strict=True):
        if cell is None:
            raise InputError(f"{what}, row {row}: the column {column} is empty: fill it, or remove the row")


def _array(dataset: Dataset, column: str) -> np.ndarray:
    return np.asarray(dataset.select_columns([column]).with_format("numpy")[column][:])
