"""Text, sentence pairs and dictionary entries as token ids, without words or links, for pre-training and PPA."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import datasets
import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, Features, List, Value
from datasets.fingerprint import Hasher
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hf_xalign.cache import map_rows, read_json, write_text
from hf_xalign.checks import check_range
from hf_xalign.data import encoding
from hf_xalign.data.arrow import column_array, scan_columns
from hf_xalign.data.batches.masked import masking_vocabulary
from hf_xalign.data.load import as_parallel
from hf_xalign.data.parallel import COLUMNS, check_columns, only_language
from hf_xalign.errors import InputError, content_errors, explained

logger = logging.getLogger(__name__)

_ROW = Features(
    {
        "input_ids": List(Value("int32")),
        "length": Value("int32"),
        "languages": List(Value("string")),
        "parts": List(Value("int32")),
        "source_lang": Value("string"),
    }
)


def encode_pretraining(
    corpora: Mapping[str, Dataset],
    tokenizer: PreTrainedTokenizerBase,
    config: PreTrainedConfig,
    *,
    block_size: int = 512,
    pairs: Dataset | None = None,
    pair_share: float = 0.25,
    seed: int = 0,
    long_sentences: Literal["cut", "drop"] = "cut",
    pair_halves: Literal["packed", "padded"] = "packed",
) -> tuple[Dataset, dict[str, str]]:
    """Encode and pack text for pre-training (ALIGN-MLM, appendix G.3).

    *MLM rows* hold one language: consecutive sentences without a separator, until the next one would exceed
    `block_size`, with special tokens at both ends, as in RoBERTa's full sentences.

    *TLM rows* hold sentence pairs of two languages: sentences of the pivot (`target`), then those of `source`, in the
    tokenizer's pair format, with at most half a row for each. Pairs with a longer side are dropped, as in the paper.

    Each of the `corpora` has one sentence or paragraph in each row, in a column `words` (lists of str) or `text`.
    `block_size` counts special tokens too. A sentence longer than a row is `cut` and continues in the next row, or is
    left out by `long_sentences="drop"`, as in the paper. `pair_share` is TLM rows divided by MLM rows, 0.25 in the
    paper: more rows are sampled down with `seed`, fewer give a warning. `pair_halves="padded"` also pads the first
    half of a TLM row, as in the paper: all second halves then begin at one place, and their positions restart, as in
    the published code.

    Returns:
        A line of counts for each language and for `<first>+<second>` of pairs, and before them a dataset with the rows
        of each corpus, followed by those of pairs:
        - `input_ids`: list of int32, with special tokens; `length`: their number, without padding;
        - `languages`: one code, or two; `parts`: tokens of each, including the special tokens after it;
        - `source_lang`: the code, or `<first>+<second>`, by which the sampler balances;
        - `example`: the row's number, from which masks are drawn.
    """
    # Both before text is encoded: the tokenizer needs a mask token, and a row a place for each token.
    masking_vocabulary(tokenizer)
    with explained(f"tokens of a row, with special tokens, in this encoder ({config.model_type})"):
        check_range(most=encoding.position_limit(config), block_size=block_size)
    counts: dict[str, str] = {}
    packed = []
    for language, corpus in corpora.items():
        text_rows, counts[language] = _monolingual(corpus, tokenizer, language, block_size, long_sentences)
        packed.append(text_rows)
    if pairs is not None:
        wanted = max(1, round(pair_share * sum(map(len, packed))))
        text_rows, pair_counts = _bilingual(pairs, tokenizer, block_size, wanted, seed, pair_halves == "padded")
        packed.append(text_rows)
        counts[text_rows[0]["source_lang"]] = pair_counts
    rows = datasets.concatenate_datasets(packed)
    return rows.add_column("example", np.arange(len(rows))), counts


def _counts(rows: int, tokens: int, sentences: int, **others: int) -> str:
    """Return the counts of the text of a language in a line; `tokens` does not count special tokens."""
    rest = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in others.items() if count)
    made = f"{rows:,} rows, {tokens:,} tokens of {sentences:,} sentences"
    return f"{made} ({rest})" if rest else made


def _monolingual(
    corpus: Dataset, tokenizer: PreTrainedTokenizerBase, language: str, block_size: int, long_sentences: str
) -> tuple[Dataset, str]:
    column, name = "words" if "words" in corpus.column_names else "text", f"the corpus of {language}"
    remedy = "Load it by hf_xalign.data.monolingual.load_monolingual, or rename its column to text or words."
    corpus = check_columns(corpus, [column], name, remedy)
    encoder = encoding.word_tokenizer(tokenizer) if column == "words" else tokenizer
    before, after = encoding.special_frame(tokenizer)
    room = block_size - len(before) - len(after)
    encoding.check_vocabulary(tokenizer, corpus[column], language, name)

    def encode(batch: dict[str, list]) -> dict[str, list]:
        pieces, chunk_numbers = [], []
        for ids in encoding.token_ids(encoder, batch[column]):
            if long_sentences == "drop" and len(ids) > room:
                continue
            for chunk, start in enumerate(range(0, len(ids), room)):
                pieces.append(ids[start : start + room])
                chunk_numbers.append(chunk)
        return {"text_ids": pieces, "text_tokens": list(map(len, pieces)), "number": chunk_numbers}

    encoded = map_rows(
        corpus.select_columns([column]),
        encode,
        remove_columns=[column],
        features=Features({"text_ids": List(Value("int32")), "text_tokens": Value("int32"), "number": Value("int32")}),
        desc=f"Encoding {language}",
    )
    if not len(encoded):
        fitting = f" of at most {room} tokens" if long_sentences == "drop" else ""
        raise InputError(f"{name} has no text{fitting} in its {len(corpus)} rows")
    chunk_numbers = column_array(encoded, "number")
    rows = _rows(encoded, room, [before, after], {"text": language})
    tokens, left_out = column_array(encoded, "text_tokens").sum(), len(corpus) - (chunk_numbers == 0).sum()
    return rows, _counts(len(rows), tokens, len(corpus), left_out=left_out, cut=(chunk_numbers == 1).sum())


def _bilingual(
    pairs: Dataset, tokenizer: PreTrainedTokenizerBase, block_size: int, wanted: int, seed: int, padded: bool
) -> tuple[Dataset, str]:
    name = "the dataset of sentence pairs"
    pairs = as_parallel(pairs, name)
    languages = {side: str(only_language(pairs, f"{side}_lang", name)) for side in ("target", "source")}
    frame = encoding.sentence_frame(tokenizer)
    room = (block_size - sum(map(len, frame))) // 2
    encoded = encode_sides(pairs, tokenizer, "the sentence pairs")
    sizes = np.stack([column_array(encoded, name) for name in TOKENS], axis=1)
    fitting = np.flatnonzero(((sizes > 0) & (sizes <= room)).all(axis=1))
    if not len(fitting):
        most = f"each side may have 1 to {room} tokens with block_size={block_size}"
        raise InputError(f"none of the {len(pairs)} sentence pairs fits: {most}")
    rows = _rows(encoded.select(fitting), room, list(frame), languages, tokenizer.pad_token_id if padded else None)
    if (unused := len(rows) - wanted) > 0:
        rows = rows.select(np.sort(np.random.default_rng(seed).permutation(len(rows))[:wanted]))
    elif unused:
        logger.warning("the sentence pairs give %d TLM rows, of %d that pair_share asks for", len(rows), wanted)
    tokens = int(column_array(rows, "length").sum()) - len(rows) * sum(map(len, frame))
    left_out, beyond = len(pairs) - len(fitting), max(0, unused)
    return rows, _counts(len(rows), tokens, len(pairs), left_out=left_out, rows_beyond_pair_share=beyond)


def _rows(
    encoded: Dataset, room: int, frame: Sequence[list[int]], languages: dict[str, str], padding: int | None = None
) -> Dataset:
    """Pack encoded sentences (`text`, or both sides of pairs) between special tokens.

    `languages` are those of the sides, in their order in a row. `padding` is the token that fills the first half of a
    pair, if that is padded.
    """
    codes = list(languages.values())
    names = [f"{side}_ids" for side in languages]
    # A row is filled with sentences until the next would not fit: row k holds `bounds[k]` to `bounds[k + 1] - 1`.
    bounds = [0]
    sums = [np.cumsum(np.append(0, column_array(encoded, f"{side}_tokens"))) for side in languages]
    while (first := bounds[-1]) < len(encoded):
        bounds.append(min(int(np.searchsorted(total, total[first] + room, side="right")) - 1 for total in sums))
    sentences = encoded.select_columns(names)

    def build(_: dict[str, list], rows: list[int]) -> dict[str, list]:
        start = bounds[rows[0]]
        batch = sentences[start : bounds[rows[-1] + 1]]
        ids, sizes, lengths = [], [], []
        for k in rows:
            first, last = bounds[k] - start, bounds[k + 1] - start
            row, filled = list(frame[0]), 0
            ends: list[int] = []
            for name, behind in zip(names, frame[1:], strict=True):
                row += itertools.chain.from_iterable(batch[name][first:last])
                row += behind
                if padding is not None and not ends:
                    filled = len(frame[0]) + room + len(behind) - len(row)
                    row += [padding] * filled
                ends.append(len(row))
            ids.append(row)
            lengths.append(len(row) - filled)
            sizes.append(np.diff(ends, prepend=0))
        columns = ids, lengths, [codes] * len(ids), sizes, ["+".join(codes)] * len(ids)
        return dict(zip(_ROW, columns, strict=True))

    return map_rows(
        # A map over the rows' first sentences, so that the result is cached where the text is.
        sentences.select(bounds[:-1]),
        build,
        with_indices=True,
        remove_columns=names,
        features=_ROW,
        # By default, `datasets` would hash a whole corpus in memory with the function above.
        new_fingerprint=Hasher.hash([sentences._fingerprint, room, frame, codes, padding]),
        desc=f"Packing {'+'.join(codes)}",
    )


TOKENS = ["source_tokens", "target_tokens"]


def encode_sentence_pairs(
    dataset: Dataset, tokenizer: PreTrainedTokenizerBase, *, min_tokens: int = 10, max_tokens: int = 128
) -> Dataset:
    """Encode the two texts of each pair, and drop pairs that are too short or too long (PPA, section 3.2).

    A pair is kept if each side has at least `min_tokens`, and both together have at most `max_tokens`, without special
    tokens. A smaller `model_max_length` of the tokenizer lowers the limit. Nothing is truncated.

    Returns a dataset with `source_ids`, `target_ids` (without special tokens), `length` (both sides together),
    `source_lang`, `target_lang`, and `pair`, the row's number in `dataset`.
    """
    dataset = as_parallel(dataset, "the dataset")
    limit = min(max_tokens, tokenizer.model_max_length - sum(map(len, encoding.sentence_frame(tokenizer))))
    check_range(least=1, min_tokens=min_tokens)
    encoded = encode_sides(dataset, tokenizer, "the dataset")
    sizes = np.stack([column_array(encoded, name) for name in TOKENS], axis=1)
    short, long = sizes.min(axis=1) < min_tokens, sizes.sum(axis=1) > limit
    left = np.flatnonzero(~short & ~long)
    counts = f"{short.sum()} pairs have fewer than {min_tokens} tokens on a side"
    counts += f", {(long & ~short).sum()} more than {limit} on both sides together"
    if not len(left):
        raise InputError(f"no pair is left: {counts}. Lower min_tokens, or raise max_tokens.")
    if len(left) < len(encoded):
        logger.info("dropped %d of %d pairs: %s", len(encoded) - len(left), len(encoded), counts)
        encoded = encoded.select(left)
    return encoded.remove_columns(TOKENS)


def encode_sides(dataset: Dataset, tokenizer: PreTrainedTokenizerBase, what: str) -> Dataset:
    """Encode both texts of each pair; `what` names the pairs in warnings.

    Returns the columns of [`encode_sentence_pairs`], and [`TOKENS`], the numbers of tokens of the sides.
    """
    text = dataset.select_columns(list(COLUMNS))
    encoding.check_pieces(text, tokenizer, what)

    def encode(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        columns = {f"{side}_ids": encoding.token_ids(tokenizer, batch[side]) for side in ("source", "target")}
        sizes = [list(map(len, side)) for side in columns.values()]
        return {**columns, "length": list(map(sum, zip(*sizes))), "pair": rows, **dict(zip(TOKENS, sizes))}

    gone = ["source", "target"]
    return map_rows(text, encode, with_indices=True, remove_columns=gone, desc="Encoding sentence pairs")


def count_tokens(dataset: Dataset, vocabulary: int) -> np.ndarray:
    """Count each token of encoded pairs, int64 (vocabulary,); `vocabulary` is the number of tokens."""
    counts = np.zeros(vocabulary, dtype=np.int64)
    for table in scan_columns(dataset, "source_ids", "target_ids"):
        for column in table.columns:
            counts += np.bincount(pc.list_flatten(column).to_numpy(), minlength=vocabulary)
    return counts


ENTRIES_FILE = "token_entries.json"


@dataclass(frozen=True, eq=False)
class TokenEntries:
    """Dictionary of tokens, drawn once for a run and saved with the model.

    `ids` int64 (n, 2) are the tokens b_i1 (natural language or pivot) and b_i2 (derived or other language) of each
    entry, without duplicates or pairs of a token with itself. `share`, in (0, 1], of the available entries was drawn
    with `seed`. `languages` are the codes of both columns, which DICT-MLM needs.
    """

    ids: np.ndarray
    origin: str
    share: float = 1.0
    seed: int = 0
    languages: tuple[str, str] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def from_counterparts(
        cls, counterparts: np.ndarray, *, share: float = 0.25, seed: int = 0, languages: tuple[str, str] | None = None
    ) -> Self:
        """Draw a share of corresponding natural and derived tokens, int64 (n, 2), as `extend_tokenizer` returns them.

        With the same seed, a larger share includes a smaller one. `languages` are the codes of both columns.
        """
        ids = _draw(np.asarray(counterparts, dtype=np.int64), share, seed, "the derived vocabulary")
        origin = f"{len(ids)} of {len(counterparts)} pieces of a derived vocabulary"
        return cls(ids, origin, share, seed, languages)

    @classmethod
    def from_dictionary(
        cls,
        words: Sequence[tuple[str, str]],
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str = "dictionary",
        share: float = 1.0,
        seed: int = 0,
        languages: tuple[str, str] | None = None,
    ) -> Self:
        """Turn a dictionary of words into entries of tokens.

        Each word is tokenized alone, as at the start of a word in running text (`▁haus`, `Ġhaus`, or `haus` in
        WordPiece). Both words must be one piece each, because a piece inside a longer word belongs to other words too,
        and not the same piece (names, loans). Words keep the dictionary's case; MUSE's words are lower-cased, also
        German nouns.

        `words` are entries of [`~hf_xalign.data.readers.dictionaries.load_dictionary`], `languages` their codes.
        """
        pieces = [single_pieces(tokenizer, list(side)) for side in zip(*words)]
        without: list[str] = []
        pairs: dict[tuple[int | None, ...], None] = {}
        for pair, entry in zip(zip(*pieces), words):
            if None in pair:
                without.append(" / ".join(entry))
            elif pair[0] != pair[1]:
                pairs[pair] = None
        if without:
            missing = f"{len(without):,} of {len(words):,}"
            logger.warning("%s: %s entries have no one piece for each word: %s", name, missing, "; ".join(without[:3]))
        if not pairs:
            fault = f"none of its {len(words)} entries has two different words of one piece each"
            raise InputError(f"{name}: {fault}. Take a larger dictionary, or a tokenizer of these languages.")
        ids = _draw(np.array([*pairs], dtype=np.int64), share, seed, name)
        origin = f"{name}: {len(ids)} of the {len(pairs)} entries with one piece for each word, of {len(words)} in all"
        return cls(ids, origin, share, seed, languages)

    def save(self, folder: str | Path) -> Path:
        """Write the entries into a checkpoint's folder and return the file's path."""
        content = {**vars(self), "ids": self.ids.tolist()}
        return write_text(Path(folder) / ENTRIES_FILE, json.dumps(content, ensure_ascii=False))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read the entries that `save` wrote; a damaged file raises an InputError."""
        path = Path(folder) / ENTRIES_FILE
        wrong = "not a file of token entries", "Restore it from its checkpoint."
        advice = ". A model of ALIGN-MLM or DICT-MLM has this file next to its weights. Name the model's folder."
        with explained(f"{path}: cannot be read", OSError, advice=advice), content_errors(path, *wrong):
            content = read_json(path, *wrong)
            ids, languages = np.array(content.pop("ids"), dtype=np.int64), content.pop("languages")
            return cls(ids, **content, languages=languages and tuple(languages))


def _draw(ids: np.ndarray, share: float, seed: int, name: str) -> np.ndarray:
    check_range(above=0, most=1, share=share)
    if not (count := round(share * len(ids))):
        raise InputError(f"{name}: a share of {share} of {len(ids)} entries holds none. Make the share larger.")
    return ids[np.sort(np.random.default_rng(seed).permutation(len(ids))[:count])]


def single_pieces(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[int | None]:
    """Return the id of each word's only piece, None for a word of several pieces, of none, or with an unknown one."""
    encoded = encoding.token_ids(encoding.word_tokenizer(tokenizer), [[word] for word in words])
    return [ids[0] if len(ids) == 1 and ids[0] != tokenizer.unk_token_id else None for ids in encoded]
