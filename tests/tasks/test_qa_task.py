"""Question answering as a task: loss, predictions and scores of a tiny reader, from a file to F1."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.tiny import make_encoder, make_tokenizer
from transformers import BertForQuestionAnswering

from hf_xalign.tasks.languages import LanguageInputs
from hf_xalign.tasks.prediction import score_languages
from hf_xalign.tasks.qa_reading import read_questions
from hf_xalign.tasks.qa_task import QuestionTask

TASK = QuestionTask(overlap=6, max_question_tokens=8, max_answer_tokens=8)
LENGTH = 24
FILES = {
    "en": [("the cat sees the dog . the house is open , and the file is open .", "who sees?", ["the cat", "cat"])],
    "de": [("die katze sieht den hund . das haus ist offen , die datei auch .", "wer?", ["die katze"])],
}


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qa")
    found = {}
    for language, rows in FILES.items():
        paragraphs = []
        for number, (context, question, texts) in enumerate(rows):
            answers = [{"text": text, "answer_start": context.index(text)} for text in texts]
            last = {"text": "hund" if language == "de" else "dog", "answer_start": 0}
            last["answer_start"] = context.index(last["text"])
            paragraphs.append(
                {
                    "context": context,
                    "qas": [
                        {"id": f"{number}-0", "question": question, "answers": answers},
                        {"id": f"{number}-1", "question": "open file?", "answers": [last]},
                    ],
                }
            )
        path = folder / f"{language}.json"
        path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
        found[language] = read_questions(f"{language}={path}")
    return found


def make_reader():
    torch.manual_seed(0)
    encoder = make_encoder()
    model = BertForQuestionAnswering(encoder.config)
    model.bert.load_state_dict(encoder.state_dict())
    return model


@pytest.fixture(scope="module")
def trained(sets):
    tokenizer, model = make_tokenizer(), make_reader()
    encoded = TASK.encode(sets["en"], tokenizer, LanguageInputs.of(model), max_length=LENGTH, training=True)
    batch = TASK.collator(tokenizer.pad_token_id)(list(encoded))
    inputs, _ = TASK.split(batch)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        loss = TASK.loss(model(**inputs), batch) / TASK.count_items(batch)
        loss.backward()
        optimizer.step()
    return model, float(loss.detach())


def test_from_a_file_to_scores(sets, trained):
    model, loss = trained
    assert loss < 0.1
    tokenizer = make_tokenizer()
    languages = LanguageInputs.of(model)
    evaluation = {
        language: (part, TASK.encode(part, tokenizer, languages, max_length=LENGTH, training=False))
        for language, part in sets.items()
    }
    assert len(evaluation["en"][1]) > len(sets["en"]), "no context needs a second window: the test looks at nothing"
    scores = score_languages(model, TASK, evaluation, tokenizer, batch_size=3)
    assert scores["en"].totals() == {"qa_f1": 1.0, "exact_match": 1.0}
    assert scores["en"].counts == {"windows": len(evaluation["en"][1])}
    assert len(scores["de"].examples["qa_f1"]) == 2 and 0 <= scores["de"].totals()["qa_f1"] <= 1


def test_answers_are_pieces_of_their_contexts(sets, trained):
    model, _ = trained
    tokenizer = make_tokenizer()
    encoded = TASK.encode(sets["en"], tokenizer, LanguageInputs.of(model), max_length=LENGTH, training=False)
    batch = TASK.collator(tokenizer.pad_token_id)(list(encoded))
    with torch.no_grad():
        predictions = TASK.predictions(model(**TASK.split(batch)[0]), batch)
    assert all(one.shape == (3,) for one in predictions)
    assert TASK.answers(sets["en"], encoded, predictions) == ["the cat", "dog"]
    other = QuestionTask(overlap=6, max_question_tokens=8, metric="exact_match", rules="squad")
    assert other.score(sets["en"], encoded, predictions).totals() == {"qa_f1": 1.0, "exact_match": 1.0}


def test_loss_is_the_sum_of_each_windows_own(sets):
    """A window alone, without padding, has the loss that it has in a batch; and that is transformers'."""
    tokenizer, model = make_tokenizer(), make_reader()
    encoded = list(TASK.encode(sets["en"], tokenizer, LanguageInputs(), max_length=LENGTH, training=True))
    collate = TASK.collator(tokenizer.pad_token_id)
    together = collate(encoded)
    assert (together["attention_mask"] == 0).any()
    assert TASK.count_items(together) == len(encoded)
    alone = []
    for row in encoded:
        batch = collate([row])
        inputs, labels = TASK.split(batch)
        assert set(labels) == {"start_positions", "end_positions"}
        output = model(**inputs)
        own = TASK.loss(output, batch)
        assert own.item() == pytest.approx(model(**inputs, **labels).loss.item(), rel=1e-5)
        expected = [
            F.cross_entropy(logits, batch[name])
            for logits, name in ((output.start_logits, "start_positions"), (output.end_logits, "end_positions"))
        ]
        assert own.item() == pytest.approx(np.mean([part.item() for part in expected]), rel=1e-5)
        alone.append(own.item())
    whole = TASK.loss(model(**TASK.split(together)[0]), together)
    assert whole.item() == pytest.approx(sum(alone), rel=1e-5)
    whole.backward()
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)
