"""Scores, and answers out of logits, against slow references or by hand; and the `evaluate` modules."""

import itertools
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from support.labelled import LABELS, slow_spans
from support.numeric import assert_rounding

from hf_xalign import metrics
from hf_xalign.data.span_labels import Span, find_spans
from hf_xalign.errors import InputError
from hf_xalign.tasks import Examples, LabelSet, SequenceTask, TokenTask
from hf_xalign.tasks.questions import best_spans, window_spans
from hf_xalign.tasks.results import format_scores, write_scores
from hf_xalign.tasks.scoring import (
    answer_tokens,
    by_language,
    count_spans,
    count_words,
    micro_scores,
    score_answers,
    tags_as_spans,
)

# Sums of counts are exact; what follows is two quotients, a product and a sum of them, and a quotient.
RATIO = 5


def draw(count=60, seed=0):
    rng = np.random.default_rng(seed)
    names = ["O", "B-a", "I-a", "B-b", "I-b"]
    sizes = rng.integers(1, 9, count)
    return [[[names[k] for k in rng.integers(0, 5, size)] for size in sizes] for _ in range(2)]


def test_span_counts_against_a_slow_reference():
    assert find_spans([]) == [] and find_spans(["B-a-b", "I-a-b"]) == [Span(0, 2, "a-b")]
    predicted, gold = draw()
    counts = count_spans(predicted, gold)
    for row, (ours, theirs) in enumerate(zip(predicted, gold, strict=True)):
        found, there = slow_spans(ours), slow_spans(theirs)
        expected = [len(set(found) & set(there)), len(found), len(there)]
        assert [column[row] for column in counts.columns.values()] == expected
        assert find_spans(ours) == found
    right, found, there = (sum(column) for column in counts.columns.values())
    assert 0 < right < found
    expected = {"f1": 2 * right / (found + there), "precision": right / found, "recall": right / there}
    assert_rounding([micro_scores(counts)[name] for name in expected], list(expected.values()), RATIO)


def test_word_counts_against_a_slow_reference():
    predicted, gold = draw(seed=1)
    predicted[3][0] = None
    micro, every = count_words(predicted, gold), count_words(predicted, gold, outside=None)
    both = [pair for ours, theirs in zip(predicted, gold, strict=True) for pair in zip(ours, theirs, strict=True)]
    assert_rounding(every.score(), sum(p == g for p, g in both) / len(both), RATIO)
    assert every.columns["predicted"].tolist() == every.columns["gold"].tolist() == [len(labels) for labels in gold]
    assert micro.columns["correct"].sum() == sum(p == g != "O" for p, g in both)
    assert micro.columns["predicted"].sum() == sum(p not in (None, "O") for p, _ in both)
    assert micro.columns["gold"].sum() == sum(g != "O" for _, g in both)


def test_spans_are_the_same_in_every_scheme():
    gold = [["B-a", "I-a", "E-a", "O", "S-b"], ["O", "S-a"]]
    predicted = [["B-a", "L-a", "O", "O", "U-b"], ["O", "U-a"]]
    counts = count_spans(predicted, gold)
    assert [column.tolist() for column in counts.columns.values()] == [[1, 1], [2, 1], [2, 1]]
    found = metrics.load("span_f1").compute(predictions=predicted, references=gold)
    assert [found["kinds"][kind]["predicted"] for kind in "ab"] == [2, 1] and found["kinds"]["b"]["f1"] == 1.0
    bio = [["B-a", "I-a", "I-a", "O", "B-b"], ["O", "B-a"]]
    assert metrics.load("span_f1").compute(predictions=bio, references=gold)["f1"] == 1.0


def test_labels_without_prefixes_next_to_o_are_told(caplog):
    for names, metric, told in ((["O", "PER"], None, 1), (["O", "PER"], "span_f1", 0), (["ADJ", "X"], None, 0)):
        caplog.clear()
        assert TokenTask(LabelSet.of(names), metric).metric == (metric or "accuracy")
        assert caplog.text.count("the score counts words labelled O too") == told


def test_words_without_a_label_are_not_scored():
    gold = [["B-a", "_", "I-a", "O"]]
    rows = Dataset.from_dict({"tokens": [["x"] * 4], "labels": gold, "line": [1]})
    encoded = Dataset.from_dict({"first": [[1, 2, 3, -1]]})
    found = TokenTask(LABELS).score(Examples("f", "de", rows), encoded, [np.array([1, 1])])
    # The second span begins after the word without a label.
    assert found.counts == {"words": 3, "lost_words": 1} and found.totals()["span_f1"] == 1.0
    assert_rounding(found.totals()["accuracy"], 2 / 3, RATIO)


def test_scores_of_a_task():
    gold = [["B-a", "I-a", "O"], ["O", "B-a", "O"]]
    rows = Dataset.from_dict({"tokens": [["x"] * 3] * 2, "labels": gold, "line": [1, 2]})
    encoded = Dataset.from_dict({"first": [[1, 2, 3], [1, -1, -1]]})
    found = TokenTask(LABELS).score(Examples("f", "de", rows), encoded, [np.array([1, 2, 0]), np.array([0])])
    assert found.counts == {"words": 6, "lost_words": 2} and len(found.examples["span_f1"]) == 2
    expected = {"accuracy": 4 / 6, "span_f1": 2 * 1 / (1 + 2), "token_f1": 2 * 2 / (2 + 3)}
    assert found.totals().keys() == expected.keys()
    assert_rounding([found.totals()[name] for name in expected], list(expected.values()), RATIO)
    rows = Dataset.from_dict({"text_a": ["a", "b", "c"], "label": ["x", "y", "x"], "line": [1, 2, 3]})
    found = SequenceTask(LabelSet.of(["x", "y"])).score(Examples("f", "de", rows), rows, [np.array(0)] * 3)
    assert found.totals().keys() == {"accuracy"}
    assert_rounding(found.totals()["accuracy"], 2 / 3, RATIO)


def test_scores_are_no_classes_and_classes_may_be_written_as_fractions():
    def make(*labels, given=()):
        rows = Dataset.from_dict({"text_a": [*labels], "label": [*labels]})
        return SequenceTask.make(SimpleNamespace(labels=[*given]), [Examples("sts.tsv", "de", rows)], [])

    with pytest.raises(InputError, match=r"sts.tsv: the label '3.25' is a score"):
        make("3.25", "4.0")
    assert make("1.0", "2.0").labels.names == ("1.0", "2.0")
    assert make("0.5", given=["0.5", "1"]).labels.names == ("0.5", "1")


# ---- Answers out of logits ----

QUESTIONS = np.array([0, 0, 0, 1, 3, 3, 4])  # question 2 has no window
TOKENS = 12


def make_logits(seed, ties=False):
    """Logits and character offsets of overlapping windows: each begins 5 tokens after the one before it."""
    logits = torch.randn(2, len(QUESTIONS), TOKENS, generator=torch.Generator().manual_seed(seed))
    opens, closes = torch.full((2, len(QUESTIONS), TOKENS), -1)
    for w, question in enumerate(QUESTIONS[:-1]):  # the last window has no text
        shift = 5 * int((QUESTIONS[:w] == question).sum())
        for token in range(3, TOKENS - 1):
            # Every fourth token of a context is the second one of a character.
            n = token - 3 + shift
            if n % 4 != 3:
                opens[w, token] = 10 * n
            if n % 4 != 2:
                closes[w, token] = 10 * n + 7
    return *(logits.round() if ties else logits), opens, closes


def loop(start, end, opens, closes, longest):
    """The best span of each question by looking at all of them."""
    found = []
    for question in range(5):
        spans = {}
        for w in np.flatnonzero(question == QUESTIONS):
            for i, j in itertools.product(range(TOKENS), repeat=2):
                if i <= j < i + longest and opens[w, i] >= 0 and closes[w, j] >= 0:
                    span = int(opens[w, i]), int(closes[w, j])
                    spans[span] = max(float(start[w, i] + end[w, j]), spans.get(span, -np.inf))
        found.append(min(spans, key=lambda span: (-spans[span], *span), default=(-1, -1)))
    return found


def test_spans_are_those_of_a_loop():
    for seed, ties, longest in itertools.product(range(4), [False, True], [1, 4, 99]):
        given = make_logits(seed, ties)
        spans = window_spans(*given, max_answer_tokens=longest).numpy()
        expected = loop(*given, longest)
        assert expected[2] == expected[4] == (-1, -1) and spans[6, 2] == -np.inf
        for rows in (slice(None), np.array([4, 0, 6, 2, 5, 1, 3])):  # the order of the windows does not matter
            found = best_spans(QUESTIONS[rows], spans[rows], 5)
            assert [*map(tuple, found.tolist())] == expected, f"{seed=}, {ties=}, {longest=}"


# ---- Scores of answers ----

RULES = [
    # Articles go as words, not as parts of words; hyphens leave no blank, articles do.
    ("en", "The  well-known Theatre of a 'Man'", "wellknown theatre of man"),
    ("en", "U.S. $5 (~€4)", "us 5 €4"),
    ("de", "Die Straße in den Süden, eines Tages", "straße in süden tages"),
    ("de-CH", "Das «Haus»", "haus"),
    ("es", "La ciudad de los Ángeles, ¿un año?", "ciudad de ángeles año"),
    ("vi", unicodedata.normalize("NFD", "Những người của Hà Nội"), "người hà nội"),
    # The danda and the Devanagari abbreviation sign are punctuation; vowel signs and viramas stay.
    ("hi", "नई दिल्ली। (भारत)", "नई दिल्ली भारत"),
    ("ar", "الكتاب الجديد، ٢٠١٠؟", "كتاب جديد ٢٠١٠"),
    ("zh-Hant", "《紅樓夢》的 iPhone手機", "紅 樓 夢 的 iphone 手 機"),
    ("ja", "東京タワー", "東 京 タ ワ ー"),
    ("th", "ที่นี่ 5 กม.", "ที่ นี่ 5 ก ม"),
]
# Prediction, references, language, F1, exact match.
# Row 1: of "rhine and main rivers" (4) and "main" (1) 2 * 1 / 5; and "main river rhine" (3) 2 * 2 / 7.
CASES = [
    ("the Rhine", ["Rhine!"], "en", 1, 1),
    ("Rhine and Main rivers", ["the Main", "Main river Rhine"], "en", 4 / 7, 0),
    ("", ["Elbe"], "en", 0, 0),
    ("die Donau", ["Donau"], "de", 1, 1),
    ("北京大学", ["北京"], "zh", 2 * 2 / 6, 0),
    ("a", ["A"], "en", 1, 1),
    ("x x y", ["x y y"], "de", 2 * 2 / 6, 0),
]
PREDICTIONS, REFERENCES, LANGUAGES, F1, EXACT = map(list, zip(*CASES, strict=True))
# Five operations for an answer's F1, then the mean over at most 7 answers and that over 3 languages.
OPERATIONS = 5 + 7 + 3


def test_rules_of_each_language():
    for language, answer, expected in RULES:
        assert " ".join(answer_tokens(answer, language)) == expected, (language, answer)
    assert answer_tokens("IŞIK, İzmir", "tr") == answer_tokens("ışık izmir", "tr") == ["ışık", "izmir"]


def test_scores_of_answers_by_language_and_of_the_metric():
    answers = score_answers(PREDICTIONS, REFERENCES, LANGUAGES)
    assert_rounding(answers.f1, F1, OPERATIONS)
    np.testing.assert_array_equal(answers.exact_match, EXACT)
    found = by_language(answers, LANGUAGES)
    own = {"de": (1 + 2 / 3) / 2, "en": (1 + 4 / 7 + 0 + 1) / 4, "zh": 2 / 3}
    assert list(found["languages"]) == list(own)
    assert_rounding([part["f1"] for part in found["languages"].values()], list(own.values()), OPERATIONS)
    assert_rounding(found["f1"], np.mean(list(own.values())), OPERATIONS)
    assert_rounding(found["exact_match"], (1 / 2 + 1 / 2 + 0) / 3, OPERATIONS)
    assert [found["questions"], *(part["questions"] for part in found["languages"].values())] == [7, 2, 4, 1]
    given = {"predictions": PREDICTIONS, "references": REFERENCES, "languages": LANGUAGES}
    assert metrics.load("qa_f1").compute(**given) == found


def seqeval_spans(tags):
    """The chunks of seqeval's default mode, by its rules for a tag's first letter and kind."""
    chunks, begin, before = [], 0, ("O", "")
    for place, tag in enumerate([*tags, "O"]):
        now = (tag[0], tag)
        other = before[0] not in "O." and before[1] != now[1]
        ends = before[0] in "ES" or (before[0] == "B" and now[0] in "BSO") or (before[0] == "I" and now[0] in "BSO")
        starts = (
            now[0] in "BS" or (before[0] in "ESO" and now[0] in "EI") or (now[0] not in "O." and before[1] != now[1])
        )
        if ends or other:
            chunks.append((begin, place, before[1]))
        if starts:
            begin = place
        before = now
    return {chunk for chunk in chunks if chunk[2][0] not in "O."}


def test_parts_of_speech_as_spans():
    tags = ["NOUN", "NOUN", "INTJ", "SCONJ", "EX", ".", "BE", "O"]
    draw = np.random.default_rng(0)
    for _ in range(300):
        own = [tags[k] for k in draw.integers(0, len(tags), size=draw.integers(1, 12))]
        assert {tuple(span) for span in find_spans(tags_as_spans(own))} == seqeval_spans(own), own
    gold, predicted = ["DET", "NOUN", "NOUN", "VERB"], ["DET", "NOUN", "ADJ", None]
    examples = Examples("f", "en", Dataset.from_dict({"tokens": [list("abcd")], "labels": [gold], "line": [1]}))
    task = TokenTask(LabelSet.of(["DET", "NOUN", "VERB", "ADJ"]), "span_f1")
    ids = np.array([task.labels.ids[tag] for tag in predicted if tag])
    found = task.score(examples, Dataset.from_dict({"first": [[1, 2, 3, -1]]}), [ids])
    assert found.totals()["accuracy"] == 2 / 4 and found.totals()["span_f1"] == 2 * 1 / (3 + 3)


def test_a_table_says_that_only_one_label_was_predicted(tmp_path):
    rows = Dataset.from_dict({"tokens": [["a", "b"]], "labels": [["O", "B-x"]]})
    task, encoded = TokenTask(LabelSet.of(["O", "B-x"])), Dataset.from_dict({"first": [[1, 2]]})
    how = {"task": "token", "metric": "span_f1", "seed": 3, "train_language": "en"}
    for name, ids, said in (("one", [0, 0], True), ("two", [0, 1], False)):
        scores = task.score(Examples("f", "de", rows), encoded, [np.array(ids)])
        content = write_scores(tmp_path / name, {"de": scores}, how=how)
        assert ("seed 3: only O was predicted in de" in format_scores([content])) == said
