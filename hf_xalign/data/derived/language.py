"""Derived languages: a natural language with another script, another word order, or both; and data sets in them.

These are the languages of ALIGN-MLM (Tang et al. 2022: T_trans, T_inv, T_syn), and the random order of Deshpande et
al. (2022).

    english = load_monolingual("wikitext.txt")["text"]
    language = DerivedLanguage("en", ("inversion", "transliteration"), alphabet=Alphabet.of(english))
    language.words("the cat sleeps .".split())              # sleeps cat the ., each word in Tangut letters

Everything works on words, before tokenization. A derived sentence depends only on the language and the sentence's own
words, not on row numbers or processes. So it has the same form in pre-training text, parallel pairs and labelled data.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from datasets import Dataset, Features, List, Value
from tokenizers import Tokenizer
from tokenizers.normalizers import Normalizer
from transformers import PreTrainedTokenizerBase

from hf_xalign.cache import map_rows, read_json, write_json
from hf_xalign.checks import GIVEN, check, needs, setting, show
from hf_xalign.data.derived.word_order import TREE_COLUMNS, Tree, WordOrder
from hf_xalign.data.encoding import word_tokenizer
from hf_xalign.data.parallel import COLUMNS, Table, check_columns
from hf_xalign.data.span_labels import Span, find_spans, span_parts
from hf_xalign.errors import InputError, content_errors, explained

# Tangut, which no vocabulary of natural text has.
LETTERS = range(0x17000, 0x187F8)
# SentencePiece's mark for the start of a word is part of pieces but has no letter.
WORD_START = "▁"


@dataclass(frozen=True)
class Alphabet:
    """A one-to-one map from characters to letters: the i-th character becomes the i-th Tangut letter.

    `characters` are in ascending order, each once, at most 6,136, without blanks, "▁" and Tangut letters, as
    [`Alphabet.of`] makes them of text.
    """

    characters: str

    @classmethod
    def of(cls, words: Iterable[str], tokenizer: PreTrainedTokenizerBase | None = None) -> Alphabet:
        """Make an alphabet of the characters of words or texts, or of their 6,136 most frequent characters.

        With `tokenizer`, the alphabet also holds what its normalizer makes of them (lower case of capitals, "fi" for a
        ligature), as `extend_tokenizer` needs.
        """
        counts: Counter[str] = Counter()
        for word in words:
            counts.update(word)
        normalizer = None if tokenizer is None else tokenizer.backend_tokenizer.normalizer
        chosen: set[str] = set()
        for character in sorted(counts, key=lambda c: (-counts[c], c)):
            normal = "" if normalizer is None else normalized_character(normalizer, character)
            new = {c for c in character + normal if not c.isspace() and c != WORD_START}
            if len(chosen | new) <= len(LETTERS):
                chosen |= new
        return cls("".join(sorted(chosen)))

    def __len__(self) -> int:
        return len(self.characters)

    def unknown(self, text: str) -> list[str]:
        """Return the characters of the text that are not in the alphabet, in ascending order."""
        table = _table(self.characters)
        return sorted(c for c in set(text) if ord(c) not in table and not c.isspace() and c != WORD_START)

    def translate(self, text: str) -> str:
        """Return the transliterated text; characters outside the alphabet stay."""
        return text.translate(_table(self.characters))


def normalized_character(normalizer: Normalizer, character: str) -> str:
    """Return what a normalizer of `tokenizers` makes of one character inside a word."""
    # Nothing composes with digits, and marks added at the ends of a text stay outside them.
    text = normalizer.normalize_str(f"0{character}0")
    return text[text.index("0") + 1 : text.rindex("0")]


@dataclass(frozen=True)
class SharedPieces:
    """Pieces that a natural language and its derived language share (ALIGN-MLM, appendix D).

    `tokenizer` is the natural language's tokenizer for text that is already split into words, as the JSON of
    `tokenizers`. `pieces` are ids of its vocabulary, in ascending order.

    Text in which all other pieces are transliterated is split like the natural text.
    """

    tokenizer: str
    pieces: tuple[int, ...]

    @classmethod
    def draw(
        cls, tokenizer: PreTrainedTokenizerBase, pieces: np.ndarray, share: float, *, seed: int = 0
    ) -> SharedPieces:
        """Draw a share, in [0, 1], of the `pieces` int64 (n,) of a tokenizer; larger shares include smaller ones."""
        drawn = np.random.default_rng((seed, 1)).permutation(len(pieces))[: round(share * len(pieces))]
        return cls(word_tokenizer(tokenizer).backend_tokenizer.to_str(), tuple(np.sort(pieces[drawn]).tolist()))

    def __hash__(self) -> int:
        # Cached by the string; a hash of many pieces would be computed for every word.
        return hash(self.tokenizer)


@functools.lru_cache(maxsize=4)
def _shared_backend(shared: SharedPieces) -> tuple[Tokenizer, frozenset[int]]:
    tokenizer = Tokenizer.from_str(shared.tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, frozenset(shared.pieces)


@functools.lru_cache(maxsize=1 << 18)
def _stays(shared: SharedPieces, word: str) -> tuple[bool, ...]:
    """Return for each character of a word whether it stays, because all pieces that hold it are shared."""
    tokenizer, pieces = _shared_backend(shared)
    encoding = tokenizer.encode([word], is_pretokenized=True, add_special_tokens=False)
    inside: list[set[bool]] = [set() for _ in word]
    for number, piece, (start, end) in zip(encoding.ids, encoding.tokens, encoding.offsets):
        if piece != WORD_START:
            for position in range(start, end):
                inside[position].add(number in pieces)
    return tuple(memberships == {True} for memberships in inside)


@functools.lru_cache(maxsize=16)
def _table(characters: str) -> dict[int, int]:
    return dict(zip(map(ord, characters), LETTERS))


Operation = Literal["syntax", "inversion", "permutation", "transliteration"]

# These stay last when a sentence is reordered.
SENTENCE_ENDS = frozenset({".", "?", "!", "。", "？", "！", "।", "؟"})

_SUBTAGS = {"syntax": "syntax", "inversion": "inv", "permutation": "perm", "transliteration": "trans"}


@dataclass(frozen=True)
class DerivedLanguage:
    """A language derived from the sentences of a natural language.

    A full stop, question mark or exclamation mark ends a sentence, and operations on word order leave it in place, as
    in the published data of ALIGN-MLM. So inverting a text of several sentences twice restores it.

    Args:
        base: code of the natural language.
        operations: applied in this order ("trans o inv" is inversion, transliteration):

            - `syntax`: reorder the dependents of nouns and verbs by `word_order`; needs trees, so it comes first.
            - `inversion`: reverse the words of each sentence.
            - `permutation`: put the words of each sentence in random order.
            - `transliteration`: replace each character by `alphabet`, others stay; hides sentence ends, so it comes
              last.
        seed: seed of the random orders.
        shared: pieces of the vocabulary that stay the same in both languages; all other pieces are transliterated.
        alphabet: alphabet of the transliteration, from `Alphabet.of(words)`.
        word_order: learned by `WordOrder.learn` from the trees of the language whose order is wanted.
    """

    base: str
    operations: tuple[Operation, ...] = setting(
        distinct=True, rules=[needs(when="transliteration", alphabet=GIVEN), needs(when="syntax", word_order=GIVEN)]
    )
    seed: int = 0
    shared: SharedPieces | None = setting(
        None, rules=[needs("of the pieces that are not transliterated", operations="transliteration")]
    )
    alphabet: Alphabet | None = setting(None, rules=[needs(operations="transliteration")])
    word_order: WordOrder | None = setting(None, rules=[needs(operations="syntax")])

    def __post_init__(self) -> None:
        operations = tuple(self.operations)
        object.__setattr__(self, "operations", operations)
        check(self)
        if "syntax" in operations[1:] or "transliteration" in operations[:-1]:
            order = "syntax comes first, as trees describe natural sentences, and transliteration last"
            raise InputError(f"operations={show(operations)}: {order}, as it hides where sentences end")

    @property
    def code(self) -> str:
        """Private-use language code such as `en-x-inv-trans` (BCP 47)."""
        return "-".join([self.base, "x", *(_SUBTAGS[operation] for operation in self.operations)])

    def order(self, words: Sequence[str], tree: Tree | None = None) -> list[int]:
        """Return the derived word order: for each place, the index of the word that goes there.

        `words` may be several sentences, but `syntax` takes one sentence with its tree.
        """
        order = list(range(len(words)))
        for operation in self.operations:
            if operation == "syntax":
                order = self._syntax(words, tree)
            elif operation != "transliteration":
                moved: list[int] = []
                for start, end, stop in sentences([words[i] for i in order]):
                    body = order[start:end]
                    if operation == "inversion":
                        body.reverse()
                    else:
                        draw = _generator(self.seed, operation, [words[i] for i in body])
                        keys = [draw() for _ in body]
                        body = [body[k] for k in sorted(range(len(body)), key=keys.__getitem__)]
                    moved += body + order[end:stop]
                order = moved
        return order

    def spell(self, word: str) -> str:
        """Return a word in the derived language's script."""
        if self.alphabet is None:
            return word
        letters = self.alphabet.translate(word)
        if self.shared is None:
            return letters
        stays = _stays(self.shared, word)
        return "".join(old if stay else new for old, new, stay in zip(word, letters, stays, strict=True))

    def words(self, words: Sequence[str], tree: Tree | None = None) -> list[str]:
        """Return a sentence in the derived language: reordered, then respelled."""
        return [self.spell(words[i]) for i in self.order(words, tree)]

    def save(self, path: str | os.PathLike) -> str:
        """Write the language as JSON, with its alphabet and word order, and return the path."""
        return str(write_json(Path(path), asdict(self)))

    @classmethod
    def load(cls, path: str | os.PathLike) -> DerivedLanguage:
        """Read a file that `save` wrote."""
        fault = "not a derived language that hf_xalign saved"
        with explained(f"{path}: cannot be read", OSError), content_errors(path, fault):
            content = read_json(path, fault)
            if shared := content["shared"]:
                shared["pieces"] = tuple(shared["pieces"])
            for name, make in (("alphabet", Alphabet), ("word_order", WordOrder), ("shared", SharedPieces)):
                content[name] = content[name] and make(**content[name])
            return cls(**content)

    def _syntax(self, words: Sequence[str], tree: Tree | None) -> list[int]:
        assert self.word_order is not None and tree is not None  # the first is checked in the constructor
        order = self.word_order.order(tree, _generator(self.seed, "syntax", words))
        last = len(words) - 1
        if words and words[last] in SENTENCE_ENDS:
            order.remove(last)
            order.append(last)
        return order


def sentences(words: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the sentences of a row as `(start, end, stop)`: words `[start, end)`, final mark `[end, stop)`."""
    start = 0
    for i, word in enumerate(words):
        if word in SENTENCE_ENDS:
            yield start, i, i + 1
            start = i + 1
    if start < len(words):
        yield start, len(words), len(words)


def _generator(seed: int, purpose: str, words: Sequence[str]) -> Callable[[], float]:
    """Return a function that draws numbers in [0, 1), seeded by the words."""
    key = hashlib.blake2b("\n".join([str(seed), purpose, *words]).encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(key)).random


def derive(
    dataset: Dataset, language: DerivedLanguage, columns: Sequence[str], *, labels: str | None = None
) -> Dataset:
    """Rewrite text of the natural language in a derived one; labels move with their words.

    `columns` hold text (strings with blanks between words, or word lists). If there is one, the column `labels` may
    hold one string for each of its words; labels of spans are BIO labels, see [`move_spans`]. A language with `syntax`
    also needs the [`tree_columns`]. Other lists are left out, because the words that they belong to have moved.
    """
    trees = tree_columns(columns) if "syntax" in language.operations else dict.fromkeys(columns, ())
    _check_columns(dataset, trees, *([] if labels is None else [labels]))
    read, lists = {*columns, labels}, {name for name, kind in dataset.features.items() if isinstance(kind, List)}
    columns_left = [name for name in dataset.column_names if name in read or name not in lists]
    spans = labels is not None and bool(span_parts(chain.from_iterable(dataset[labels])))

    def rewrite(batch: Table, rows: Sequence[int]) -> Table:
        rewritten: Table = {name: [] for name in (*trees, *([labels] if labels else []))}
        for i, row in enumerate(rows):
            for name, tree in trees.items():
                value = batch[name][i]
                _, order, derived = _sentence(batch, i, row, name, tree, language)
                rewritten[name].append(" ".join(derived) if isinstance(value, str) else derived)
            if labels:
                values = batch[labels][i]
                rewritten[labels].append(move_spans(values, order) if spans else [values[k] for k in order])
        return rewritten

    return map_rows(
        dataset,
        rewrite,
        with_indices=True,
        remove_columns=[name for name in dataset.column_names if name not in columns_left],
        features=Features({name: dataset.features[name] for name in columns_left}),
        desc=f"Deriving {language.code}",
    )


def tree_columns(columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the tree columns of each text column: `upos`, `heads` and `deprels`, see [`Tree`].

    With several text columns, each name begins with that of its text, as in `text_b_heads`.
    """
    return {name: tuple(f"{name}_{end}" if len(columns) > 1 else end for end in TREE_COLUMNS) for name in columns}


def derive_pairs(dataset: Dataset, language: DerivedLanguage, column: str) -> Dataset:
    """Make parallel text of a derived language, the source side, and its natural one.

    `column` holds the text; arguments and errors are those of [`derive`]. Every sentence of a row becomes a pair. With
    `syntax` the whole row is one pair, because it has one tree.
    """
    trees = tree_columns([column])[column] if "syntax" in language.operations else ()
    _check_columns(dataset, {column: trees})

    def pair(batch: Table, rows: Sequence[int]) -> Table:
        pairs: list[tuple] = []
        for i, row in enumerate(rows):
            words, _, derived = _sentence(batch, i, row, column, trees, language)
            # Without trees no word leaves its sentence.
            stops = [len(words)] if trees else [stop for _, _, stop in sentences(words)]
            for start, stop in pairwise([0, *stops]):
                if start < stop:
                    sides = derived[start:stop], words[start:stop]
                    pairs.append((*map(" ".join, sides), language.code, language.base))
        return {name: [pair[k] for pair in pairs] for k, name in enumerate(COLUMNS)}

    return map_rows(
        dataset,
        pair,
        with_indices=True,
        remove_columns=dataset.column_names,
        features=Features(dict.fromkeys(COLUMNS, Value("string"))),
        desc=f"Pairing {language.code}",
    )


def move_spans(labels: Sequence[str], order: Sequence[int]) -> list[str]:
    """Reorder BIO labels with their words; `order` has for each new place the index of the word that goes there.

    Words of one span that are still next to each other stay one span: the first is B, the others I (B I I reversed is
    B I I). A span whose words are separated becomes several spans. An I without a B of its type before it begins a
    span (IOB1).
    """
    span_of: dict[int, Span] = {}
    for span in find_spans(labels):
        span_of |= dict.fromkeys(range(span.start, span.end), span)
    moved = []
    last = None
    for index in order:
        own = span_of.get(index)
        moved.append(labels[index] if own is None else f"{'I' if own == last else 'B'}-{own.kind}")
        last = own
    return moved


def _sentence(
    batch: Table, i: int, row: int, column: str, trees: Sequence[str], language: DerivedLanguage
) -> tuple[list[str], list[int], list[str]]:
    """Return the words of a row, their new order, and the derived words."""
    value = batch[column][i]
    words = value.split() if isinstance(value, str) else list(value)
    with explained(f"row {row}, {column}"):
        tree = Tree(words, *(batch[name][i] for name in trees)) if trees else None
        order = language.order(words, tree)
        return words, order, [language.spell(words[k]) for k in order]


def _check_columns(dataset: Dataset, trees: Mapping[str, Sequence[str]], *labels: str) -> None:
    needed = list(chain.from_iterable(trees.values()))
    remedy = "syntax needs dependency trees: read them from CoNLL-U by load_treebank." if needed else ""
    check_columns(dataset, [*trees, *labels, *needed], "the dataset", remedy)
