"""Evaluation sets with two languages in an example, made out of parallel sets in one.

cross_lingual(questions=english, contexts=german)        # G-XLT: English questions on German contexts
mix_languages(german, english, seed=0)                   # either side of each example is English instead
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import datasets
import numpy as np

from hf_xalign.data.code_switching.examples import GROUP, code_switch_pairs
from hf_xalign.data.pretraining.masking import example_draws
from hf_xalign.errors import InputError
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.qa.reading import COLUMNS, pair_code

_QUESTION = ("question", "question_lang")
_CONTEXT = ("context", "context_lang", "answers")


def cross_lingual(questions: Examples, contexts: Examples) -> Examples:
    """Questions in one language on contexts in another, with the answers that stand in the contexts.

    This is MLQA's G-XLT (Lewis et al. 2020), for any set whose languages have the same ids, such as XQuAD.

    Args:
        questions: of [`~hf_xalign.tasks.qa.reading.read_questions`]; its contexts are not used.
        contexts: likewise; its questions are not used.

    Returns:
        A question for each of `contexts`, in its order, called by both languages (`en+de`).

    Raises:
        InputError: one set has an id that the other has not.
    """
    ids = questions.rows["id"][:], contexts.rows["id"][:]
    rows = {name: row for row, name in enumerate(ids[0])}
    missing = [name for name in ids[1] if name not in rows], sorted(set(ids[0]) - set(ids[1]))
    for absent, there, other in zip(missing, (contexts, questions), (questions, contexts), strict=True):
        if absent:
            raise InputError(
                f"{len(absent)} of the {len(there)} ids of {there.name} are not in {other.name}, the first is "
                f"{absent[0]!r}: both sets must have the same questions (were they read with the same split, "
                "max_examples and on_unusable?)"
            )
    asked = questions.rows.select([rows[name] for name in ids[1]]).select_columns(list(_QUESTION))
    both = datasets.concatenate_datasets([contexts.rows.remove_columns(list(_QUESTION)), asked], axis=1)
    both = both.select_columns(list(COLUMNS))
    languages = {
        (row["question_lang"], row["context_lang"]) for row in both.select_columns([_QUESTION[1], _CONTEXT[1]])
    }
    name = f"{contexts.name} with the questions of {questions.name}"
    code = pair_code(*languages.pop()) if len(languages) == 1 else pair_code(questions.language, contexts.language)
    return Examples(name, code, both, contexts.unit, _fingerprint(questions, contexts))


def mix_languages(examples: Examples, english: Examples, *, seed: int) -> Examples:
    """Replace one side of each example by its English original: the question or the context, either text of a pair.

    CONTINUAL's mixed-language NLI (METHODS section 5) is this. A fair coin decides, drawn for each example by the seed
    and its number alone. To keep a set as a file: `mixed.rows.to_json("mixed.jsonl")`.

    Args:
        examples: questions, or pairs of texts (`text_a`, `text_b`).
        english: the same in English: questions are found by `id`, pairs of texts by their place.
        seed: of the coins.

    Returns:
        The rows of `examples`, under its language and with `english`: the column whose text is now English.

    Raises:
        InputError: the sets do not belong together: an id is missing, one has more rows, or labels differ; or the
            examples are no pairs.
    """
    columns = examples.rows.column_names
    if "context" in columns:
        sides: tuple[Sequence[str], Sequence[str]] = (_QUESTION, _CONTEXT)
    elif "text_b" in columns:
        sides = (("text_a",), ("text_b",))
    else:
        raise InputError(
            f"{examples.name}: its examples ({', '.join(columns)}) are no pairs, of which one side is taken"
        )
    try:
        halves = code_switch_pairs(
            examples.rows,
            english.rows,
            first=sides[0],
            second=sides[1],
            id_column="id" if "id" in columns else None,
        )
    except InputError as error:
        raise InputError(f"{examples.name} with {english.name}: {error}") from error
    second = example_draws(np.arange(len(examples)), 1, seed=seed, epoch=0) < 0.5
    # Of each example's two halves the first has the second side in English.
    mixed = halves.select(2 * np.arange(len(examples)) + ~second).remove_columns(GROUP)
    mixed = mixed.add_column("english", np.where(second, sides[1][0], sides[0][0]).tolist())
    name = f"{examples.name} mixed with {english.name} (seed {seed})"
    return Examples(name, examples.language, mixed, examples.unit, _fingerprint(examples, english, str(seed)))


def _fingerprint(one: Examples, other: Examples, more: str = "") -> str:
    return hashlib.blake2b(f"{one.fingerprint} {other.fingerprint} {more}".encode(), digest_size=16).hexdigest()
