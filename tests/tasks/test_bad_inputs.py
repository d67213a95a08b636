"""Bad inputs of tasks: files, settings, models and scores. A row is (message, function, *arguments)."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from support import labelled
from support.adapters import adapt, make_base
from support.families import save_base
from support.labelled import GERMAN, LABELS, asked, blind, pairs, squad, squad_rows, words, write_json, write_lines
from support.maps import make_rotated
from support.refusals import assert_refused
from support.tiny import make_tokenizer
from transformers import BertForTokenClassification

from hf_xalign import tasks
from hf_xalign.tasks import Examples, LabelSet, LanguageInputs, SequenceTask, TaggingTask, TokenTask, load_task_model
from hf_xalign.tasks.qa.answers import best_spans, window_spans
from hf_xalign.tasks.qa.features import encode_questions
from hf_xalign.tasks.qa.normalization import answer_tokens
from hf_xalign.tasks.qa.scores import score_answers
from hf_xalign.tasks.scoring import count_classes, count_spans, count_words
from hf_xalign.trainers.task import TaskTrainer
from hf_xalign.trainers.task_config import TaskConfig

BIO, OTHER = TaggingTask(LABELS, bio=True), LabelSet.of(["X", "Y", "Z"])


def check(rows, folder=None):
    table = {f"{k}, {message}": (partial(call, *given), message) for k, (message, call, *given) in enumerate(rows)}
    assert_refused(table, folder)


def read(reader, name, content, folder, before="de=", asked_for=None):
    """Write a file and read it."""
    path = folder / name
    if isinstance(content, str | bytes):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    else:
        (write_lines if name.endswith(".jsonl") else write_json)(path, content)
    return reader(f"{before}{folder / (asked_for or name)}")


token, sequence = partial(tasks.read_examples, kind="token"), partial(tasks.read_examples, kind="sequence")
known = LabelSet.of(["O", "B-LOC"])


def sets(codes, expected, folder):
    path = write_lines(folder / "a.jsonl", [{"text": "a", "label": "x"}])
    return tasks.by_language([sequence(f"{code}={path}") for code in codes], expected)


def load_labels(content, folder):
    return LabelSet.load(str(write_json(folder / "labels.json", content)))


def test_labelled_text(tmp_path):
    first = {"tokens": ["a"], "labels": ["O"]}
    bad = [
        ("2 words in 'tokens' but 1 labels in 'labels'", {"tokens": ["a", "b"], "labels": ["O"]}),
        ("no column 'labels'; the columns are tokens", {"tokens": ["a"]}),
        ("column 'tokens' holds str, not a list", {"tokens": "a", "labels": ["O"]}),
        ("column 'tokens' holds int, not text", {"tokens": [1], "labels": ["O"]}),
        ("column 'labels' has the label null", {"tokens": ["a"], "labels": [None]}),
        ("the sentence has no words", {"tokens": [], "labels": []}),
    ]
    texts = [{"text_a": "a", "text_b": " ", "label": "x"}, {"text": "a", "label": 0.5}]
    unseen = [{"tokens": ["a"], "labels": ["I-LOC"]}, {"tokens": ["b", "c"], "labels": ["O", "B-PER"]}]
    named = r"de\.jsonl, line 2 \(word 2, 'c'\): label 'B-PER' is none of the 3 labels \(O, B-LOC, I-LOC\)"
    misspelt = partial(read, asked_for="de.conlu")
    check(
        [
            *((rf"de\.jsonl, line 2: {message}", read, token, "de.jsonl", [first, row]) for message, row in bad),
            ("line 2: 1 columns, and the sentence's first word has 2", read, token, "a.conll", "a O\nb\n"),
            ("line 1: one column", read, token, "a.conll", "a\nb\n"),
            ("no examples in it", read, token, "a.conll", "\n\n"),
            ("line 1: 2 tab-separated columns; CoNLL-U has 10", read, token, "a.conllu", "1\ta\n"),
            ("name its language", partial(read, before=""), token, "a.conllu", "1\ta\n"),
            (r"de\.conlu: no such file; did you mean .*de\.conllu", misspelt, token, "de.conllu", "1\ta\n"),
            ("labelled text is read from", read, token, "de.csv", "a,b\n"),
            ("line 1: column 'text_b' is empty", read, sequence, "a.jsonl", texts[:1]),
            (r"line 1: column 'label' has the label 0\.5", read, sequence, "a.jsonl", texts[1:]),
            ("no evaluation text in bn, hi; there is text in de, en", sets, ("de", "en"), ["de", "bn", "hi"]),
            ("de has two evaluation sets", sets, ("de", "en", "de"), None),
            (named, read, lambda item: token(item).check_labels(known, "the training text"), "de.jsonl", unseen),
            ("1 different labels", lambda folder: LabelSet.of(["X"])),
            (r"holds a, b. Name one, as in .*labels\.json:a", load_labels, {"a": ["y", "x"], "b": ["O", "B-a"]}),
            ("'a' is in it twice", load_labels, ["a", "b", "a"]),
            ("a list of labels, each a string", load_labels, [1, 2]),
            ("a list of labels", load_labels, "a"),
            ("No such file", lambda folder: LabelSet.load(str(folder / "other.json"))),
        ],
        tmp_path,
    )


def changed(change, folder):
    """Change (content, second paragraph, its first question) of a file, and read it."""
    content = squad([GERMAN, "x " + GERMAN])
    paragraph = content["data"][0]["paragraphs"][1]
    change(content, paragraph, paragraph["qas"][0])
    return read(tasks.read_questions, "a.json", content, folder)


def test_layout_of_questions(tmp_path):
    second = r"a\.json, data\[0\].paragraphs\[1\]"
    asked, pairs = rf"{second}.qas\[0\]", "'answers' are not pairs of text and answer_start"
    elsewhere = rf"{asked} \(id 'c1q0'\): with an answer that is not at its answer_start"
    changes = [
        (r"a.json: no 'data', there is 'version'", lambda c, p, q: c.pop("data")),
        (f"{second}: no 'context'", lambda c, p, q: p.pop("context")),
        (rf"{asked} \(id 'c1q0'\): no 'answers'", lambda c, p, q: q.pop("answers")),
        (f"{asked}: no 'id'", lambda c, p, q: q.pop("id")),
        (f"{asked}: 'id' is None", lambda c, p, q: q.update(id=None)),
        (pairs, lambda c, p, q: q["answers"][0].pop("answer_start")),
        (pairs, lambda c, p, q: q.update(answers="x")),
        (pairs, lambda c, p, q: q["answers"][0].update(answer_start="3")),
        (f"{second}: 'qas' holds dict, not a list", lambda c, p, q: p.update(qas={})),
        (r"data\[1\]: no 'paragraphs', there is a list", lambda c, p, q: c["data"].append([])),
        ("column 'question' holds NoneType, not text", lambda c, p, q: q.update(question=None)),
        (f"{asked}: 'context' is empty", lambda c, p, q: p.update(context=" \n")),
        ("a.json: not UTF-8 text .*surrogates", lambda c, p, q: q.update(question="\ud83d?")),
        (rf"{asked}: id 'c0q1' is at .*paragraphs\[0\].qas\[1", lambda c, p, q: q.update(id="c0q1")),
        ("a.json: no questions in it", lambda c, p, q: c.update(data=[])),
        (f"{asked}.* without an answer", lambda c, p, q: q.update(answers=[], is_impossible=True)),
        (elsewhere, lambda c, p, q: q["answers"][0].update(answer_start=-1)),
        (elsewhere, lambda c, p, q: q["answers"].append({"text": "", "answer_start": 0})),
    ]
    check([(message, changed, change) for message, change in changes], tmp_path)


def test_files_and_languages_of_questions(tmp_path):
    tydi = squad(questions=["a?", "b?", "c?"], answers=["Rhein", "Elbe", "Köln"])
    for k, question in enumerate(tydi["data"][0]["paragraphs"][0]["qas"]):
        question["id"] = ("swahili-123-0", "telugu--45-1", "swahili-7-2")[k]
    codes = zip(squad_rows(squad()), ("de", "en"), strict=True)
    mixed = [{**row, "question_lang": "de", "context_lang": code} for row, code in codes]
    unnamed, finnish, spanish = (partial(read, before=before) for before in ("", "fi=", "es="))
    other_name = partial(read, asked_for="aa.json")
    answerless = [{"id": 1, "question": "a", "context": "b"}]
    mlqa = "test-context-de-question-en.json"

    def cross(first, folder):
        german = read(tasks.read_questions, "de.json", squad(), folder)
        both = german, Examples("one.json", "de", german.rows.select([0]))
        return tasks.cross_lingual(both[first], both[1 - first])

    questions = tasks.read_questions
    mix = partial(tasks.mix_languages, seed=0)
    check(
        [
            (r"no such file; did you mean .*a\.json", other_name, questions, "a.json", squad()),
            (r"b\.json, line 2: not JSON .*a line \.jsonl", read, questions, "b.json", '{"a": 1}\n{"b": 2}\n'),
            ("damaged gzip", read, questions, "c.json.gz", b"x"),
            (r"d\.jsonl, line 1 .*: no 'answers', there is 'id', 'quest", read, questions, "d.jsonl", answerless),
            ("the language is unknown", unnamed, questions, "a.json", squad()),
            ("several languages. Name the set", unnamed, questions, "mixed.jsonl", mixed),
            ("no question is in fi; there are 2 in sw, 1 in te", finnish, questions, "tydi.json", tydi),
            ("contexts in de and questions in en, not es", spanish, questions, mlqa, squad()),
            (r"1 of the 2 ids of .*de\.json are not in one\.json, the first is 'c0q1'", cross, 0),
            (r"1 of the 2 ids of .*de\.json are not in one\.json", cross, 1),
            ("row 0: label is x, and y in the English", lambda _: mix(pairs("de"), pairs("en", "y"))),
            ("40 translated and 39 English examples", lambda _: mix(pairs("de"), pairs("en", count=39))),
            ("are not pairs", lambda _: mix(words(), words())),
        ],
        tmp_path,
    )


def windows(rows=(("who ?", labelled.CONTEXT, "cat"),), codes=(), languages=None, tokenizer=None, **options):
    options = {"max_length": 24, "overlap": 6, "max_question_tokens": 8, "training": True, **options}
    given = asked(rows, *codes), tokenizer or make_tokenizer(), languages or LanguageInputs()
    return encode_questions(*given, **options)


def test_windows_and_answers():
    embeddings = LanguageInputs(embeddings={"en": 4, "de": 7}, maps={"en": 0, "de": 2})
    unseen, empty = [("who ?", "ჩემი სახლი", "სახლი")], [("who ?", "the cat \u200b sees", "\u200b")]
    crowded = "windows of 17 tokens .* overlap=6 and 3 special tokens leave no room"
    spans = partial(window_spans, *torch.zeros(4, 7, 12), max_answer_tokens=0)
    diverged = np.zeros((7, 3))
    diverged[2, 2] = np.nan
    check(
        [
            (crowded, partial(windows, max_length=17)),
            ("windows of 64 tokens", partial(windows, max_length=999, overlap=60)),
            ("overlap=-1", partial(windows, overlap=-1)),
            ("language 'fr'", partial(windows, codes=("fr", "de"), languages=embeddings)),
            (r"qa\.json, context: the tokenizer", windows, unseen),
            (r"qa\.json: the tokenizer drops every answer", partial(windows, empty, tokenizer=blind())),
            ("max_answer_tokens=0", spans),
            ("scores of window 2 are NaN", best_spans, np.zeros(7, dtype=int), diverged, 5),
            (r"rules='xtreme': .* mlqa or squad", answer_tokens, "a", "en", "xtreme"),
            ("0 answers", score_answers, [], [], []),
            ("1 answers, references of 2 questions, 1 languages", score_answers, ["a"], [["a"], ["b"]], ["en"]),
            (r"question 1: \[\] is not a list of one or more", score_answers, ["a", "b"], [["a"], []], "en"),
        ]
    )


def encode(task, examples, languages=None, tokenizer=None, max_length=32, training=True):
    given = tokenizer or make_tokenizer(), languages or LanguageInputs()
    return task.encode(examples, *given, max_length=max_length, training=training)


def test_encoding_and_scores():
    tokens, texts = TokenTask(LABELS), SequenceTask(LabelSet.of(["x", "y"]))
    strange = words([["the", "cat"], ["a", "dog"]], names=[["O", "O"], ["O", "I-a"]])
    empty = words([["the", "dog"], ["cat", "\u200b\x00", "open"]])
    nothing = r"file\.jsonl, line 2: the tokenizer drops word 2 \('\\u200b\\x00'\)"
    told = LanguageInputs(embeddings={"en": 0, "de": 1})
    check(
        [
            (r"file\.jsonl, line 2: word 2 is I-a after O.*tagger_bio=false", encode, BIO, strange),
            (nothing, encode, tokens, empty, None, blind()),
            ("special tokens", partial(encode, texts, labelled.texts(), max_length=2)),
            ("'fr': the encoder has language embeddings for en, de", encode, tokens, words(language="fr"), told),
            ("the model has maps for", LanguageInputs(maps={"en": 0}).columns, "fr"),
            ("sentence 1: label 'NOUN' is not O", count_spans, [["O"], ["NOUN"]], [["O"], ["O"]]),
            ("sentence 0: 1 predicted labels for 2 words", count_words, [["O"]], [["O", "O"]]),
            ("1 predicted sentences for 2 reference", count_spans, [["O"]], [["O"], ["O"]]),
            ("1 predictions for 2", count_classes, ["x"], ["x", "y"]),
            ("span_f1 needs BIO labels", TokenTask, OTHER, "span_f1"),
        ]
    )
    assert len(encode(BIO, strange, training=False)) == len(encode(TaggingTask(LABELS), strange)) == 2


def test_models(tmp_path):
    names = "base", "mapped", "adapter", "unlabelled", "headed", "none"
    base, mapped, adapter, unlabelled, headed, none = (str(tmp_path / name) for name in names)
    save_base("bert", base)
    make_rotated(layers=(-2, -1)).save_pretrained(mapped)
    adapt(make_base(), "linear").save_pretrained(adapter)
    BertForTokenClassification(make_base().config).save_pretrained(unlabelled)
    load_task_model(base, TokenTask(LABELS)).save_pretrained(headed)
    config = partial(TaskConfig, output_dir=none, use_cpu=True, report_to="none")
    assert config().preset == "ours"
    data = {"train_dataset": [words(kinds=2)], "processing_class": make_tokenizer()}
    train = partial(TaskTrainer, tasks.load_tagger(base, BIO, lstm_size=6), config(), task=BIO, **data)
    labels = "is a BertForTokenClassification for O, B-a, I-a, whose head"
    check(
        [
            ("transformers cannot load it", load_task_model, none, BIO),
            ("is an adapter. Give it by adapter=", load_task_model, adapter, BIO),
            (labels, load_task_model, headed, TokenTask(OTHER)),
            ("whose head does not fit this task", load_task_model, headed, SequenceTask(LABELS)),
            ("has maps already. Remove adapter=", partial(tasks.load_tagger, mapped, BIO, adapter=adapter)),
            ("has a task head: a tagger needs the encoder alone", tasks.load_tagger, unlabelled, BIO),
            ("head=linear .*BiLSTMCRFForTokenClassification", train),
            ("head=crf: choose one of linear, tagger", partial(config, head="crf")),
        ]
    )
