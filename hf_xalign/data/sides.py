"""Tell whether the two sides of parallel text are what their languages say, without a model."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import regex
from datasets import Dataset

from hf_xalign.cache import table_rows
from hf_xalign.data import forms
from hf_xalign.data.parallel import COLUMNS, describe_pair
from hf_xalign.language_codes import letters_in, likely_language, unicode_scripts

logger = logging.getLogger(__name__)

Texts = Sequence[str]  # of one side
# Pairs whose sides are checked: enough for a share of 5%, and read in no time from a corpus of any size.
SAMPLE = 1000
_BLOCK = 50  # consecutive ones of them
# Pairs from which scripts and repeated strings tell something. In 12,795 windows of 20 pairs of real text and
# dictionaries, every source with letters had one of its script.
_ENOUGH, _MANY = 20, 100
_FEW = 4  # function words of another language in a dictionary, and rows that are odd by chance
# Rows whose numbers and acronyms are compared, and how many both sides have at least. In 515 sets of real pairs,
# 79% and more of those that both sides have were in the same row; of rows that do not belong together, under half.
_PART, _SHARED = 250, 9
_REPEATED = 9  # texts that one text translates in dictionaries
_ODD = 20  # of so many rows one may be odd; in 673 sets of real pairs, at most one in 33 was
_COPIED = regex.compile(r"\w*\d\w*|\b[A-Z]\w*[A-Z]\w*")  # numbers and acronyms, which translators copy
# Words of a side, and of each of its texts, from which the absence of function words tells another language. In 1,407
# stretches of 2,000 words of programs' texts, one word in 100 or more was of their language's list.
_ABSENT, _SENTENCE, _RARE = 2000, 4, 1000
# Frequent words of a language that others in the same script rarely have.
_TABLE = Path(__file__).with_name("function_words.tsv")
_FUNCTION_WORDS = {language: {*words.split()} for language, words in table_rows(_TABLE)}


def faults_of_pairs(pairs: Dataset) -> Iterator[str]:
    """Yield what [`faults_of_sides`] finds in a sample of pairs, of each two languages by themselves."""
    starts = np.linspace(0, max(0, len(pairs) - _BLOCK), SAMPLE // _BLOCK).astype(int)
    rows = np.unique(starts[:, None] + np.arange(min(_BLOCK, len(pairs))))
    sample, by_languages = pairs[rows], defaultdict(list)
    for pair in zip(*map(sample.__getitem__, COLUMNS), strict=True):
        by_languages[pair[2:]].append(pair)
    for languages, group in by_languages.items():
        sources, targets, *_ = zip(*group, strict=True)
        for fault in faults_of_sides(sources, targets, *languages):
            yield f"{describe_pair(dict(zip(COLUMNS, group[0])))}: {fault}"


def warn_of_pairs(pairs: Dataset, name: str) -> None:
    """Warn of what is wrong with the sides of pairs, which [`faults_of_pairs`] finds."""
    for fault in faults_of_pairs(pairs):
        logger.warning("%s: %s", name, fault)


def faults_of_sides(sources: Texts, targets: Texts, source_lang: str, target_lang: str) -> Iterator[str]:
    """Yield what is wrong with the two sides, and the remedy, without a model: marks of tools, then languages."""
    for side, texts in (("source", sources), ("target", targets)):
        if fault := forms.fault_of_marks(texts):
            yield f"the {side} is {fault}"
    if _rows_are_apart(sources, targets):
        yield "numbers and acronyms that both sides have are in different rows. Align both sides again"
    pairs = dict.fromkeys(zip(sources, targets, strict=True))
    faults = [check(sources, targets, source_lang, target_lang) for check in _CHECKS]
    if len(pairs) >= _ENOUGH:
        faults += [check(*zip(*pairs, strict=True), source_lang, target_lang) for check in _OF_MANY]
    if fault := next(chain.from_iterable(faults), None):
        yield f"{fault}. Remove such rows, name both columns (--source_column, --target_column), or swap the two files"


def scripts_are_swapped(sources: Iterable[str], targets: Iterable[str], source_lang: str, target_lang: str) -> bool:
    """Return whether each side is mostly in the script of the other one's language."""
    scripts = _scripts(source_lang), _scripts(target_lang)
    own, other, theirs, pivot = (
        len(letters_in(script).findall(" ".join(side))) for side in (sources, targets) for script in scripts
    )
    return all(scripts) and own * 2 < other and pivot * 2 < theirs


def _scripts(code: str) -> frozenset[str]:
    """Return the scripts of a language by Unicode's names, none for a language whose script is unknown."""
    return unicode_scripts(str(likely_language(code).script))


def _rows_are_apart(sources: Texts, targets: Texts) -> bool:
    """Return whether most numbers and acronyms that both sides have are in different rows."""
    rows = [({*_COPIED.findall(source)}, {*_COPIED.findall(target)}) for source, target in zip(sources, targets)]
    # All rows, and parts of them, because a line may be missing in the middle.
    for part in (rows, *(rows[start : start + _PART] for start in range(0, len(rows), _PART))):
        left, right = zip(*part)
        shared = Counter(chain.from_iterable(left)) & Counter(chain.from_iterable(right))
        if shared.total() > max(_SHARED, 2 * sum(map(len, map(set.intersection, left, right)))):
            return True
    return False


def entries_are_swapped(first: set[str], second: set[str], source_lang: str, target_lang: str) -> bool:
    """Return whether the second words of a dictionary are the target's, by their scripts or function words."""
    for lang, right, wrong in ((target_lang, first, second), (source_lang, second, first)):
        known = _FUNCTION_WORDS.get(likely_language(lang).language, set())
        if len(known & wrong) > max(_FEW, 3 * len(known & right)):
            return True
    return scripts_are_swapped(second, first, source_lang, target_lang)


def _swapped_scripts(sources: Texts, targets: Texts, source_lang: str, target_lang: str) -> Iterator[str]:
    if scripts_are_swapped(sources, targets, source_lang, target_lang):
        why = f"the source ({source_lang}) is in the script of the target ({target_lang})"
        yield f"the sides are swapped, because {why}"


def _other_words(sources: Texts, targets: Texts, source_lang: str, target_lang: str) -> Iterator[str]:
    different = {*sources}, {*targets}
    source, target = (" ".join(side).lower().split() for side in different)
    in_source, in_target = map(_count_words, (source, target))
    own, pivot = (likely_language(code).language for code in (source_lang, target_lang))
    if in_source.get(pivot, 0) > max(in_target.get(pivot, 0), 1, len(different[0]) // 20 - 1):
        yield f"the sides are swapped, because the source ({source_lang}) has more words such as {_such(pivot)}"
    if own != pivot and in_target.get(own, 0) > max(in_source.get(own, 0), 1, len(different[1]) // 20 - 1):
        yield f"the sides are swapped, because the target ({target_lang}) has more words such as {_such(own)}"
    for fault in _absence(in_target, len(target), len(different[1]), target_lang):
        yield f"the target {fault}"
    for fault in _absence(in_source, len(source), len(different[0]), source_lang) if own != pivot else ():
        yield f"the source {fault}"


def _few_sources(sources: Sequence[str], *_: object) -> Iterator[str]:
    # A few pairs, written several times to try a command, are no fault.
    if len({*sources}) <= _FEW and len(sources) >= _MANY:
        yield "most sources are one of a few strings, so they are no sentences"


def _copies(sources: Texts, targets: Texts, source_lang: str, target_lang: str) -> Iterator[str]:
    alike = [source for source, target in zip(sources, targets) if source == target]
    long = [text for text in alike if len(text.split()) >= _SENTENCE]
    own, pivot = (likely_language(code).language for code in (source_lang, target_lang))
    if own != pivot and max(len(alike) / 9, len(long) / 2) * 10 > len(sources):
        yield f"{len(alike)} of {len(sources)} sources are the same as their targets, such as {(long or alike)[0]!r}"


def _repeats(sources: Texts, targets: Texts, *_: object) -> Iterator[str]:
    # A text that translates many others, such as `TODO` and `Loading...`.
    for side, texts in (("source", sources), ("target", targets)):
        text, count = Counter(texts).most_common(1)[0]
        if count > max(_REPEATED, len(sources) // _ODD):
            yield f"{text!r} is the {side} of {count} different texts"


def _other_scripts(sources: Texts, targets: Texts, source_lang: str, target_lang: str) -> Iterator[str]:
    own, pivot = _scripts(source_lang), _scripts(target_lang)
    # A source may be in the target's script.
    for side, texts, scripts in (("sources", sources, own and pivot and own | pivot), ("targets", targets, pivot)):
        letters, every = letters_in(scripts), letters_in(frozenset())
        odd = [text for text in texts if len(letters.findall(text)) * 2 < len(every.findall(text))]
        yield from _odd_texts(odd, len(texts), f"{side} are in another script")


def _other_languages(sources: Texts, targets: Texts, source_lang: str, target_lang: str) -> Iterator[str]:
    changed = [pair for pair in zip(sources, targets) if pair[0] != pair[1]]
    own, pivot = (likely_language(code).language for code in (source_lang, target_lang))
    for side, texts, lang in zip(("sources", "targets"), zip(*changed), (own, pivot)):
        yield from _odd_texts(_in_another(texts, lang, pivot), len(sources), f"{side} are in another language")


def _no_letters(sources: Texts, targets: Texts, source_lang: str, *_: object) -> Iterator[str]:
    letters = letters_in(_scripts(source_lang))
    # Numbers of rows, for example.
    if sum(letters.search(text) is not None for text in sources) * 20 < len(sources):
        yield f"nearly no source has a letter of the script of {source_lang}"


# Checks of the two sides, each of which yields its faults; the first one is told.
_CHECKS: Sequence[Callable[..., Iterator[str]]] = (_swapped_scripts, _other_words, _few_sources)
# These are of different pairs, and tell something from a number of them on.
_OF_MANY: Sequence[Callable[..., Iterator[str]]] = (_copies, _repeats, _other_scripts, _other_languages, _no_letters)


def _odd_texts(odd: Sequence[str], texts: int, fault: str) -> Iterator[str]:
    if len(odd) > max(_FEW, texts // _ODD):
        yield f"{len(odd)} of {texts} {fault}, such as {odd[0]!r}"


def _absence(counts: Mapping[str, int], words: int, texts: int, lang: str) -> Iterator[str]:
    own = likely_language(lang).language
    if words >= max(_ABSENT, _SENTENCE * texts) and counts.get(own, words) * _RARE < words:
        yield f"is not in {lang}, because it has hardly any words such as {_such(own)}"


def _in_another(texts: Iterable[str], lang: str, pivot: str = "en") -> list[str]:
    """Return the texts with function words of another language; of the pivot, if the language has no list."""
    told = ({*_FUNCTION_WORDS} if lang in _FUNCTION_WORDS else {pivot} & {*_FUNCTION_WORDS}) - {lang}
    odd = []
    for text in texts:
        counts = _count_words(text.lower().split())
        # Close languages share words.
        if any(counts[code] > counts.get(lang, 0) + 1 for code in told):
            odd.append(text)
    return odd


def warn_of_text(texts: Sequence[str], lang: str, name: str) -> None:
    """Warn if a text of one language has marks of tools, or is in another one."""
    if fault := forms.fault_of_marks([*{*texts}]):
        logger.warning("%s: the text is %s", name, fault)
    warn_of_language(texts, lang, name)


def warn_of_language(texts: Iterable[str], lang: str, name: str) -> None:
    """Warn if function words or letters show that a text of one language is in another one."""
    sample = [*{*texts}]
    words = " ".join(sample).lower().split()
    odd = _in_another(sample, likely_language(lang).language)
    absence = _absence(_count_words(words), len(words), len(sample), lang)
    script = _other_scripts(sample, (), lang, "en")
    if fault := next(chain(_odd_texts(odd, len(sample), "are in another language"), script, absence), None):
        logger.warning("%s: the text may not be in %s: %s. Name its language, or correct the file", name, lang, fault)


def _count_words(words: Sequence[str]) -> dict[str, int]:
    """Count the words of a text that are in the list of each language."""
    return {code: sum(map(known.__contains__, words)) for code, known in _FUNCTION_WORDS.items()}


def _such(language: str) -> str:
    return repr(min(_FUNCTION_WORDS[language]))
