"""Read labels of spans of words, such as names, in any scheme, and convert them to BIO (IOB2)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from hf_xalign.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

OUTSIDE = "O"  # a word in no span
UNLABELLED = "_"  # a word without a label, as in CoNLL-U
IGNORED = "-100"  # a word that is never scored; unlike `_` it never stands for `O`

# Parts of a span in each scheme. Labels that mix the parts of two schemes are refused.
_SCHEMES = {"BIO": "BI", "IOE": "IE", "BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES", "BMEWO": "BMEW"}
_PARTS = frozenset("BIESLUMW")  # beginning, inside, end, single, last, unit, middle, whole
_CONTINUING, _ENDING = frozenset("IMEL"), frozenset("ELSUW")
# B-PER or the like, PER-B, B or B- alone, and BPER.
_FORMS = (
    re.compile(r"(?i)(?P<part>[BIESLUMW])(?:[^\w\s]|_)(?P<kind>.+)"),
    re.compile(r"(?i)(?P<kind>.+)[-_](?P<part>[BIESLUMW])"),
    re.compile(r"(?i)(?P<part>[BIESLUMW])[-_]?(?P<kind>)"),
    re.compile(r"(?P<part>[BI])(?P<kind>\w\w+)"),
)
# CoNLL-2012 has brackets: `(PER*`, `*` and `*)`, and `(PER)` or `(PER*)` for a span of one word.
_OPENING = re.compile(r"\((?P<kind>[^()*]+)\*?\)?")
_USUAL = re.compile(r"[BIESLUMW]-.+")  # the spelling that needs no conversion
# WNUT-17 joins labels of two annotators: `O,B-person`. Other sets join those of spans inside one another.
_JOINED = re.compile(r"(?:O|[BIESLU]-[^,;|/+]+)(?:[,;|/+](?:O|[BIESLU]-[^,;|/+]+))+")
_NO_KIND = "SPAN"  # of labels that are B and I alone
_REMEDY = "Correct it, or write all labels in one scheme, such as BIO."


class Span(NamedTuple):
    """Words `[start, end)` of one `kind`."""

    start: int
    end: int
    kind: str


def find_spans(labels: Sequence[str]) -> list[Span]:
    """Return the spans that labels `PART-kind` mark, in any scheme."""
    spans: list[Span] = []
    start, kind = 0, ""
    for word, label in enumerate([*labels, OUTSIDE]):
        part, _, label_kind = label.partition("-")
        if kind and (part not in _CONTINUING or label_kind != kind):
            spans.append(Span(start, word, kind))
            kind = ""
        # As in CoNLL's `conlleval` and seqeval's default mode, an `I-` label without an open span begins one.
        if part in _PARTS and not kind:
            start, kind = word, label_kind
        if kind and part in _ENDING:
            spans.append(Span(start, word + 1, kind))
            kind = ""
    return spans


def span_parts(names: Iterable[str], *, certain: bool = False) -> dict[str, str]:
    """Return each label as `PART-kind` or `O`, if the labels mark spans; else an empty dictionary.

    They mark spans if all of them contain the part of a span (`B`, `I`, ...) in one form, unless they could also be
    parts of speech (`S_noun`, `M`); with `certain` the form is enough. `o` and 0 mean `O`, and `_` if no label does.
    """
    names = set(names)
    outside = names & {OUTSIDE, "o", "0"} or names & {UNLABELLED}
    inside = names - outside - {UNLABELLED}
    for form in _FORMS:
        matches = list(filter(None, map(form.fullmatch, inside)))
        if not inside or len(matches) < len(inside):
            continue
        forms, parts, kinds = dict[str, str](), set[str](), set[str]()
        for match in matches:
            part, kind = match["part"].upper(), match["kind"] or _NO_KIND
            forms[match.string] = f"{part}-{kind}"
            parts.add(part)
            kinds.add(kind)
        if form is _FORMS[2]:
            likely = "B" in parts and bool(parts & _CONTINUING)
        elif form is _FORMS[3]:
            # All kinds that go on begin somewhere too, as in no set of parts of speech.
            certain = False
            likely = "I" in parts and OUTSIDE in names and {f"B{name[1:]}" for name in inside} <= inside
        else:
            usual = parts <= {"B", "I"} and all(map(_USUAL.fullmatch, inside))
            likely = usual or len(kinds) < len(inside) or bool(outside - {UNLABELLED})
        return {**forms, **dict.fromkeys(outside, OUTSIDE)} if certain or likely else {}
    return {}


def bio_names(names: Iterable[str]) -> dict[str, str]:
    """Return the BIO form of each label; labels that mark no spans stay, and `_` is left out.

    Example:
        >>> bio_names(["O", "B-city", "E-city", "S-city"])
        {'O': 'O', 'B-city': 'B-city', 'E-city': 'I-city', 'S-city': 'B-city'}
        >>> bio_names(["NOUN", "VERB", "_"])
        {'NOUN': 'NOUN', 'VERB': 'VERB'}
    """
    names = list(names)
    if not (forms := span_parts(names)):
        return {name: name for name in names if name != UNLABELLED}
    bio = {}
    for name in names:
        if name in forms:
            part, rest = forms[name][0], forms[name][1:]
            bio[name] = part + rest if part == OUTSIDE else ("I" if part in _CONTINUING else "B") + rest
    return bio


def read_spans(sentences: Sequence[Sequence[str]]) -> list[list[Span]]:
    """Return the spans of each sentence of span labels; a label that marks no span raises an InputError."""
    forms = {OUTSIDE: OUTSIDE, UNLABELLED: OUTSIDE, **span_parts(chain.from_iterable(sentences), certain=True)}
    for number, labels in enumerate(sentences):
        for label in labels:
            if label not in forms and not _FORMS[0].fullmatch(label):
                raise InputError(f"sentence {number}: the label {label!r} is in no scheme of spans, such as O, B-, I-")
    return [find_spans([forms[label] for label in labels]) for labels in sentences]


def word_labels(rows: Dataset, name: str, place: Callable[[int], str]) -> list[list[str]]:
    """Return the column `labels` of a dataset as strings, with spans as BIO labels; the log says what was converted.

    The column holds one string or class label for each word. `name` and `place`, of a row from 0, are for messages.
    """
    sentences, label = rows["labels"][:], getattr(rows.features["labels"], "feature", None)
    if label is not None and hasattr(label, "int2str"):
        # Negative ids, such as -100, mark words that are neither trained on nor scored.
        sentences = [[IGNORED if number < 0 else label.int2str(number) for number in values] for values in sentences]
    names = set(chain.from_iterable(sentences)) - {IGNORED}
    if any(map(_OPENING.fullmatch, names)):
        count = sum(map(bool, map(_OPENING.fullmatch, chain.from_iterable(sentences))))
        logger.info("%s: %s spans in brackets, as in CoNLL-2012, are read as BIO", name, f"{count:,}")
        sentences = list(map(_unbracketed, sentences))
        names = set(chain.from_iterable(sentences)) - {IGNORED}
    if joined := sorted(filter(_JOINED.fullmatch, names)):
        row = next(row for row, labels in enumerate(sentences) if joined[0] in labels)
        raise InputError(f"{place(row)}: the label {joined[0]!r} joins several labels. Keep one of them.")
    # A set's own names say whether `_` stands next to `O` or for it.
    if not (forms := span_parts(names.union(getattr(label, "names", ())))):
        _refuse_plain(sentences, names, place)
        # A zero next to tags without prefixes (`PER`) is O; next to other numbers it names a class.
        is_outside = "0" in names and not any(map(str.isdecimal, names - {"0"}))
        renamed = {IGNORED: UNLABELLED, **({"0": OUTSIDE} if is_outside else {})}
        return [[renamed.get(label, label) for label in labels] for labels in sentences]
    marks = [[forms.get(label, UNLABELLED) for label in labels] for labels in sentences]
    spans = list(map(find_spans, marks))
    parts = _PARTS & {mark[0] for mark in chain.from_iterable(marks)}
    scheme = next((scheme for scheme, letters in _SCHEMES.items() if parts <= set(letters)), None)
    if scheme is None:
        raise InputError(f"{name}: the labels mix schemes, with the parts {', '.join(sorted(parts))}. {_REMEDY}")
    bio = []
    for values, row_spans in zip(marks, spans, strict=True):
        labels = [UNLABELLED if label == UNLABELLED else OUTSIDE for label in values]
        for start, end, kind in row_spans:
            labels[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
        bio.append(labels)
    pairs = zip(chain(*sentences), chain(*bio), strict=True)
    if changed := next((pair for pair in pairs if pair[0] not in (pair[1], IGNORED)), None):
        count = sum(map(len, spans))
        logger.info("%s: %s spans labelled in %s are rewritten: %r becomes %r", name, count, scheme, *changed)
    return bio


def _unbracketed(labels: Sequence[str]) -> list[str]:
    """Return BIO labels for brackets; other labels stay, and so do spans inside one another."""
    bio: list[str] = []
    kind = None
    for label in labels:
        if opening := _OPENING.fullmatch(label):
            kind = opening["kind"]
            bio.append(f"B-{kind}")
        elif label in ("*", "*)", UNLABELLED):
            bio.append(OUTSIDE if kind is None else f"I-{kind}")
        else:
            bio.append(label)
        if label.endswith(")"):
            kind = None
    return bio


def _refuse_plain(sentences: Sequence[Sequence[str]], names: set[str], place: Callable[[int], str]) -> None:
    usual = sorted(filter(_USUAL.fullmatch, names))
    plain = names - {*usual, OUTSIDE, UNLABELLED}
    halves = {name[2:] for name in usual if name[0] == "B"} & {name[2:] for name in usual if name[0] != "B"}
    if plain and usual and (OUTSIDE in names or halves):
        row = next(row for row, labels in enumerate(sentences) if plain & {*labels})
        word, label = next((word, label) for word, label in enumerate(sentences[row], 1) if label in plain)
        fault = f"the label {label!r} marks no span, but others do, such as {usual[0]!r}"
        raise InputError(f"{place(row)}, word {word}: {fault}. {_REMEDY}")
