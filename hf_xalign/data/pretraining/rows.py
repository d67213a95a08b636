"""Dictionary entries and text as rows of pretraining."""

from __future__ import annotations

import itertools
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Self

import datasets
import numpy as np
from datasets import Dataset, Features, List, Value
from datasets.fingerprint import Hasher
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hf_xalign.cache import map_rows, read_json, write_text
from hf_xalign.checks import check_range
from hf_xalign.data import encoding
from hf_xalign.data.arrow import column_array
from hf_xalign.data.batches.masked import masking_vocabulary
from hf_xalign.data.load import as_parallel
from hf_xalign.data.parallel import check_columns, only_language
from hf_xalign.data.sentence_pairs import TOKENS, encode_sides, sentence_frame
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


class TextCounts(NamedTuple):
    """Counts of the sentences of one language or language pair.

    `left_out` have no tokens or too many; those `cut` continue in the next row. `tokens` does not count special
    tokens; `unused` counts rows of pairs beyond `pair_share`.
    """

    sentences: int
    left_out: int
    cut: int
    rows: int
    tokens: int
    unused: int = 0

    def __str__(self) -> str:
        counts = {"left out": self.left_out, "cut": self.cut, "rows beyond pair_share": self.unused}
        rest = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        made = f"{self.rows:,} rows, {self.tokens:,} tokens of {self.sentences:,} sentences"
        return f"{made} ({rest})" if rest else made


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
) -> tuple[Dataset, dict[str, TextCounts]]:
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
        The counts for each language and for `<first>+<second>` of pairs, and before them a dataset with the rows of
        each corpus, followed by those of pairs:
        - `input_ids`: list of int32, with special tokens; `length`: their number, without padding;
        - `languages`: one code, or two; `parts`: tokens of each, including the special tokens after it;
        - `source_lang`: the code, or `<first>+<second>`, by which the sampler balances;
        - `example`: the row's number, from which masks are drawn.
    """
    check_block_size(block_size, tokenizer, config, pairs=pairs is not None)
    counts: dict[str, TextCounts] = {}
    packed = []
    for language, corpus in corpora.items():
        text_rows, counts[language] = _monolingual(corpus, tokenizer, language, block_size, long_sentences)
        packed.append(text_rows)
    if pairs is not None:
        check_range(above=0, pair_share=pair_share)
        wanted = max(1, round(pair_share * sum(map(len, packed))))
        text_rows, pair_counts = _bilingual(pairs, tokenizer, block_size, wanted, seed, pair_halves == "padded")
        packed.append(text_rows)
        counts[text_rows[0]["source_lang"]] = pair_counts
    rows = datasets.concatenate_datasets(packed)
    for name, n in counts.items():
        logger.info("%s: %s", name, n)
    return rows.add_column("example", np.arange(len(rows))), counts


def check_block_size(
    block_size: int, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, *, pairs: bool = False
) -> None:
    """Check the tokenizer and block size before any text is read."""
    masking_vocabulary(tokenizer)
    frame = encoding.special_frame(tokenizer)
    least = sum(map(len, sentence_frame(tokenizer))) + 2 if pairs else sum(map(len, frame)) + 1
    with explained(f"tokens of a row, with special tokens, in this encoder ({config.model_type})"):
        check_range(least=least, most=encoding.position_limit(config), block_size=block_size)


def pack(sizes: np.ndarray, room: int) -> np.ndarray:
    """Fill rows with consecutive sentences until the next one would not fit.

    `sizes` int64 (n, sides) are the tokens of each side of a sentence or pair, at most `room`. Returns `bounds` int64
    (rows + 1,): row k holds the sentences `bounds[k]` to `bounds[k + 1] - 1`.
    """
    ends = [np.concatenate([[0], np.cumsum(side)]) for side in sizes.T]
    bounds = [0]
    while (start := bounds[-1]) < len(sizes):
        bounds.append(min(int(np.searchsorted(end, end[start] + room, side="right")) - 1 for end in ends))
    return np.array(bounds, dtype=np.int64)


def _monolingual(
    corpus: Dataset, tokenizer: PreTrainedTokenizerBase, language: str, block_size: int, long_sentences: str
) -> tuple[Dataset, TextCounts]:
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
    return rows, TextCounts(
        sentences=len(corpus),
        left_out=len(corpus) - int((chunk_numbers == 0).sum()),
        cut=int((chunk_numbers == 1).sum()),
        rows=len(rows),
        tokens=int(column_array(encoded, "text_tokens").sum()),
    )


def _bilingual(
    pairs: Dataset, tokenizer: PreTrainedTokenizerBase, block_size: int, wanted: int, seed: int, padded: bool
) -> tuple[Dataset, TextCounts]:
    name = "the dataset of sentence pairs"
    pairs = as_parallel(pairs, name)
    languages = {side: str(only_language(pairs, f"{side}_lang", name)) for side in ("target", "source")}
    frame = sentence_frame(tokenizer)
    room = (block_size - sum(map(len, frame))) // 2
    encoded = encode_sides(pairs, tokenizer, "the sentence pairs")
    sizes = np.stack([column_array(encoded, name) for name in TOKENS], axis=1)
    fitting = np.flatnonzero(((sizes > 0) & (sizes <= room)).all(axis=1))
    if not len(fitting):
        most = f"each side may have 1 to {room} tokens with block_size={block_size}"
        raise InputError(f"none of the {len(pairs)} sentence pairs fits: {most}")
    rows = _rows(encoded.select(fitting), room, list(frame), languages, tokenizer.pad_token_id if padded else None)
    if unused := max(0, len(rows) - wanted):
        rows = rows.select(np.sort(np.random.default_rng(seed).permutation(len(rows))[:wanted]))
    elif len(rows) < wanted:
        logger.warning("the sentence pairs give %d TLM rows, of %d that pair_share asks for", len(rows), wanted)
    tokens = int(column_array(rows, "length").sum()) - len(rows) * sum(map(len, frame))
    return rows, TextCounts(len(pairs), len(pairs) - len(fitting), 0, len(rows), tokens, unused)


def _rows(
    encoded: Dataset, room: int, frame: Sequence[list[int]], languages: dict[str, str], padding: int | None = None
) -> Dataset:
    """Pack encoded sentences (`text`, or both sides of pairs) between special tokens.

    `languages` are those of the sides, in their order in a row. `padding` is the token that fills the first half of a
    pair, if that is padded.
    """
    codes = list(languages.values())
    names = [f"{side}_ids" for side in languages]
    bounds = pack(np.stack([column_array(encoded, f"{side}_tokens") for side in languages], axis=1), room)
    sentences = encoded.select_columns(names)

    def build(_: dict[str, list], rows: list[int]) -> dict[str, list]:
        start = int(bounds[rows[0]])
        batch = sentences[start : int(bounds[rows[-1] + 1])]
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


ENTRIES_FILE = "token_entries.json"


@dataclass(frozen=True, eq=False)
class TokenEntries:
    """Dictionary of tokens, drawn once for a run and saved with the model.

    `ids` int64 (n, 2) are the tokens b_i1 (natural language or pivot) and b_i2 (derived or other language) of each
    entry, without duplicates or pairs of a token with itself. `share`, in (0, 1], of the available entries was drawn
    with `seed`. `dropped` counts unusable dictionary entries by reason. `languages` are the codes of both columns,
    which DICT-MLM needs.
    """

    ids: np.ndarray
    origin: str
    share: float = 1.0
    seed: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
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
        return cls(ids, origin, share, seed, languages=languages)

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
        WordPiece). Both words must be one piece each, because a piece inside a longer word belongs to other words too.
        Other entries are counted in `dropped` by the first reason that holds: `unknown` (a word has no piece, or the
        unknown token), `several_pieces`, `same_piece` (names, loans), `repeated` (`March` after `march` in an uncased
        vocabulary). Words keep the dictionary's case; MUSE's words are lower-cased, also German nouns.

        `words` are entries of [`~hf_xalign.data.readers.dictionaries.load_dictionary`], `languages` their codes.
        """
        first = single_pieces(tokenizer, [word for word, _ in words])
        second = single_pieces(tokenizer, [word for _, word in words])
        dropped: Counter[str] = Counter()
        without: list[str] = []
        pairs: dict[tuple[int | str, int | str], None] = {}
        for pair, entry in zip(zip(first, second, strict=True), words, strict=True):
            if "unknown" in pair or "several_pieces" in pair:
                dropped["unknown" if "unknown" in pair else "several_pieces"] += 1
                without.append(" / ".join(entry))
            elif pair[0] == pair[1]:
                dropped["same_piece"] += 1
            elif pair in pairs:
                dropped["repeated"] += 1
            else:
                pairs[pair] = None
        if without:
            missing = f"{len(without):,} of {len(words):,}"
            logger.warning("%s: %s entries have no one piece for each word: %s", name, missing, "; ".join(without[:3]))
        if not pairs:
            reasons = ", ".join(f"{why.replace('_', ' ')}: {count}" for why, count in sorted(dropped.items()))
            fault = f"none of its {len(words)} entries has two different words of one piece each ({reasons})"
            raise InputError(f"{name}: {fault}. Take a larger dictionary, or a tokenizer of these languages.")
        ids = _draw(np.array([*pairs], dtype=np.int64), share, seed, name)
        origin = f"{name}: {len(ids)} of the {len(pairs)} entries with one piece for each word, of {len(words)} in all"
        return cls(ids, origin, share, seed, dict(sorted(dropped.items())), languages)

    def check_vocabulary(self, size: int, name: str | Path = "the dictionary's entries") -> None:
        """Raise an InputError if a token is outside a vocabulary of `size` tokens."""
        if (outside := self.ids >= size).any():
            fault = f"token {self.ids[outside][0]} is outside the vocabulary of {size} tokens"
            raise InputError(f"{name}: {fault}. Take the tokenizer of these entries, or make them again.")

    def save(self, folder: str | Path) -> Path:
        """Write the entries into a checkpoint's folder and return the file's path."""
        content = {**vars(self), "dropped": dict(self.dropped), "entries": self.ids.tolist()}
        del content["ids"]
        return write_text(Path(folder) / ENTRIES_FILE, json.dumps(content, ensure_ascii=False))

    @classmethod
    def load(cls, folder: str | Path, *, vocab_size: int) -> Self:
        """Read the entries that `save` wrote; a damaged file or a token outside `vocab_size` raises an InputError."""
        path = Path(folder) / ENTRIES_FILE
        wrong = "not a file of token entries", "Restore it from its checkpoint."
        advice = ". A model of ALIGN-MLM or DICT-MLM has this file next to its weights. Name the model's folder."
        with explained(f"{path}: cannot be read", OSError, advice=advice), content_errors(path, *wrong):
            content = read_json(path, *wrong)
            content["languages"] = content["languages"] and tuple(content["languages"])
            entries = cls(np.array(content.pop("entries"), dtype=np.int64), **content)
        entries.check_vocabulary(vocab_size, path)
        return entries


def _draw(ids: np.ndarray, share: float, seed: int, name: str) -> np.ndarray:
    check_range(above=0, most=1, share=share)
    if not (count := round(share * len(ids))):
        raise InputError(f"{name}: a share of {share} of {len(ids)} entries holds none. Make the share larger.")
    return ids[np.sort(np.random.default_rng(seed).permutation(len(ids))[:count])]


def single_pieces(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[int | str]:
    """Return the id of each word's only piece, or the reason why it has none (`unknown`, `several_pieces`)."""
    tokenizer = encoding.word_tokenizer(tokenizer)
    pieces: list[int | str] = []
    for ids in encoding.token_ids(tokenizer, [[word] for word in words]) if words else ():
        if not ids or tokenizer.unk_token_id in ids:
            pieces.append("unknown")
        else:
            pieces.append(ids[0] if len(ids) == 1 else "several_pieces")
    return pieces
