"""Tell whether the two sides of parallel text are what their languages say, without a model."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import regex
from datasets import Dataset

from hf_xalign.cache import table_rows
from hf_xalign.data import forms
from hf_xalign.data.parallel import COLUMNS, describe_pair
from hf_xalign.language_codes import letters_in, likely_language, unicode_scripts

logger = logging.getLogger(__name__)

# Pairs whose sides are checked: enough for a share of 5%, and read in no time from a corpus of any size.
SAMPLE = 1000
_BLOCK = 50  # consecutive ones of them
# Pairs from which scripts and repeated strings tell something. In 12,795 windows of 20 pairs of real text and
# dictionaries, every source with letters had one of its script, and three strings made up at most 15 rows.
_ENOUGH, _MANY = 20, 100
_FEW = 4  # function words of another language in a dictionary, and rows that agree by chance
_COPIED = regex.compile(r"\w*\d\w*|\b[A-Z]\w*[A-Z]\w*")  # numbers and acronyms, which translators copy
# Words of a side from which function words tell its language. In real text one word in 7 is one of its language's list
# (en, nl), one in 13 in es and ru; of another's list, at most one in 500, and one in 50 between es and pt.
_TOLD, _FREQUENT = 200, 30
# Words of a side, and of each of its texts, from which the absence of function words tells another language. In 1,407
# stretches of 2,000 words of programs' texts, one word in 100 or more was of their language's list.
_ABSENT, _SENTENCE, _RARE = 2000, 4, 1000
_ID = regex.compile("[!-~]*[0-9][!-~]* ")
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


def faults_of_sides(
    sources: Sequence[str], targets: Sequence[str], source_lang: str, target_lang: str
) -> Iterator[str]:
    """Yield what is wrong with the two sides, and the remedy, without a model: marks of tools, then languages."""
    for side, texts in (("source", sources), ("target", targets)):
        if fault := forms.fault_of_marks(texts):
            yield f"the {side} is {fault}"
    if _rows_are_moved(sources, targets):
        yield "numbers fit better if a side is moved by one row: a line is missing or added. Align both sides again"
    if fault := _fault_of_sides(sources, targets, source_lang, target_lang):
        yield (
            f"{fault}. Name the columns by source_column and target_column (--source_column and --target_column on "
            "the command line), or swap the two files"
        )


def scripts_are_swapped(sources: Iterable[str], targets: Iterable[str], source_lang: str, target_lang: str) -> bool:
    """Return whether each side is mostly in the script of the other one's language."""
    letters = _own_letters(source_lang, target_lang)
    own, other, theirs, pivot = (
        len(script.findall(" ".join(side))) for side in (sources, targets) for script in letters
    )
    return own * 2 < other and pivot * 2 < theirs


def _rows_are_moved(sources: Sequence[str], targets: Sequence[str]) -> bool:
    left, right = ([{*_COPIED.findall(text)} for text in side] for side in (sources, targets))
    agree = [sum(map(bool, map(set.intersection, left[i:], right[j:]))) for i, j in ((0, 0), (1, 0), (0, 1))]
    return max(agree) > max(_FEW, 2 * agree[0])


def entries_are_swapped(first: set[str], second: set[str], source_lang: str, target_lang: str) -> bool:
    """Return whether the second words of a dictionary are the target's, by their scripts or function words."""
    for lang, right, wrong in ((target_lang, first, second), (source_lang, second, first)):
        known = _FUNCTION_WORDS.get(likely_language(lang).language, set())
        if len(known & wrong) > max(_FEW, 3 * len(known & right)):
            return True
    return scripts_are_swapped(second, first, source_lang, target_lang)


def _own_letters(source_lang: str, target_lang: str) -> list[regex.Pattern[str]]:
    """Return the letters of the scripts of two languages; those of all scripts unless both have one."""
    scripts = [unicode_scripts(str(likely_language(code).script)) for code in (source_lang, target_lang)]
    return [letters_in(names if all(scripts) else frozenset()) for names in scripts]


def _fault_of_sides(sources: Sequence[str], targets: Sequence[str], source_lang: str, target_lang: str) -> str | None:
    """Return what scripts, function words and repeated strings tell against the two sides."""
    if scripts_are_swapped(sources, targets, source_lang, target_lang):
        return (
            f"the sides are swapped, because the source ({source_lang}) is in the script of the target ({target_lang})"
        )
    if fault := _fault_of_words({*sources}, {*targets}, source_lang, target_lang):
        return fault
    # A few pairs, written several times to try a command, are no fault.
    if len(sources) < _MANY:
        sources, targets = zip(*dict.fromkeys(zip(sources, targets, strict=True)), strict=True)
    if len(sources) < _ENOUGH:
        return None
    most = len(sources) * max(0.5, 1 - len(sources) / (2 * _MANY))  # 18 of 20 rows, half of 100 and more
    for side, texts in (("sources", sources), ("targets", targets)):
        if sum(count for _, count in Counter(texts).most_common(3)) > most:
            return f"most {side} are one of three strings, so they are no sentences"
    languages = {likely_language(code).language for code in (source_lang, target_lang)}
    if len(languages) > 1 and sum(map(str.__eq__, sources, targets)) * 10 > len(sources) * 9:
        return "nearly all sources are the same as their targets"
    own, pivot = _own_letters(source_lang, target_lang)
    # Numbers of rows, for example.
    if sum(own.search(text) is not None for text in sources) * 20 < len(sources):
        return f"nearly no source has a letter of the script of {source_lang}"
    # Ids of Kaldi and of numbered sentences.
    ids = [_ID.match(f"{source} ") for source in sources]
    if sum(target.startswith(found[0]) for found, target in zip(ids, targets) if found) * 2 > len(sources):
        return f"both sides begin with ids, such as {sources[0].split()[0]!r}"
    for side, texts in (("sources", sources), ("targets", targets)):
        if sum(_ID.fullmatch(f"{text} ") is not None for text in texts) * 2 > len(texts):
            return f"most {side} are ids or names of files, such as {texts[0]!r}"
    text = " ".join(targets)
    if len(pivot.findall(text)) * 4 < len(letters_in(frozenset()).findall(text)):
        return f"most letters of the targets are not of the script of {target_lang}"
    return None


def _fault_of_words(sources: set[str], targets: set[str], source_lang: str, target_lang: str) -> str | None:
    """Return what function words tell against the languages of the two sides."""
    source, target = (" ".join(side).lower().split() for side in (sources, targets))
    in_source, in_target = map(_count_words, (source, target))
    own, pivot = (likely_language(code).language for code in (source_lang, target_lang))
    if in_source.get(pivot, 0) > max(in_target.get(pivot, 0), 1, len(sources) // 20 - 1):
        return f"the sides are swapped, because the source ({source_lang}) has more words such as {_such(pivot)}"
    if own != pivot and in_target.get(own, 0) > max(in_source.get(own, 0), 1, len(targets) // 20 - 1):
        return f"the sides are swapped, because the target ({target_lang}) has more words such as {_such(own)}"
    told = _FUNCTION_WORDS if pivot in _FUNCTION_WORDS else ()
    if fault := _fault_of_counts(in_target, len(target), len(targets), target_lang, told):
        return f"the target {fault}"
    # Close languages share words, so a source is told from the pivot alone.
    is_told = len(source) >= _TOLD and in_source.get(pivot, 0) * _FREQUENT > len(source)
    if is_told and in_source[pivot] * 2 > in_target[pivot] and own != pivot:
        return f"the source is in {pivot}, not in {source_lang}, by its words such as {_such(pivot)}"
    fault = _fault_of_counts(in_source, len(source), len(sources), source_lang, ()) if own != pivot else None
    return fault and f"the source {fault}"


def _fault_of_counts(counts: Mapping[str, int], words: int, texts: int, lang: str, told: Container[str]) -> str | None:
    """Return what the function words of a text tell against its language; they may tell it to be one of `told`."""
    own, most = likely_language(lang).language, max(counts, key=lambda code: counts[code])
    is_most = most in told and words >= _TOLD and counts[most] * _FREQUENT > words
    if is_most and counts.get(own, 0) * _TOLD < words:
        return f"is in {most}, not in {lang}, by its words such as {_such(most)}"
    if words >= max(_ABSENT, _SENTENCE * texts) and counts.get(own, words) * _RARE < words:
        return f"is not in {lang}, because it has hardly any words such as {_such(own)}"
    return None


def warn_of_text(texts: Iterable[str], lang: str, name: str) -> None:
    """Warn if a text of one language has marks of tools, or is in another one."""
    sample = {*texts}
    if fault := forms.fault_of_marks([*sample]):
        logger.warning("%s: the text is %s", name, fault)
    warn_of_language(sample, lang, name)


def warn_of_language(texts: Iterable[str], lang: str, name: str) -> None:
    """Warn if function words show that a text of one language is in another one."""
    sample = {*texts}
    words = " ".join(sample).lower().split()
    # Close languages share words, so a language without a list is told from English alone.
    told = _FUNCTION_WORDS if likely_language(lang).language in _FUNCTION_WORDS else ("en",)
    if fault := _fault_of_counts(_count_words(words), len(words), len(sample), lang, told):
        logger.warning("%s: the text %s. Name its language, or correct the file", name, fault)


def _count_words(words: Sequence[str]) -> dict[str, int]:
    """Count the words of a text that are in the list of each language."""
    return {code: sum(map(known.__contains__, words)) for code, known in _FUNCTION_WORDS.items()}


def _such(language: str) -> str:
    return repr(min(_FUNCTION_WORDS[language]))
