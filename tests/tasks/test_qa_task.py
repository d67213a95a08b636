"""Question answering as a task: loss, predictions and scores of a tiny reader, from a file to F1."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from support.labelled import ENCODER, squad, write_json
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_tokenizer
from transformers import BertForQuestionAnswering

from hf_xalign.tasks.languages import LanguageInputs
from hf_xalign.tasks.prediction import predict, score_languages
from hf_xalign.tasks.qa.reading import read_questions
from hf_xalign.tasks.qa.task import QuestionTask

TASK = QuestionTask(overlap=6, max_question_tokens=8, max_answer_tokens=8)
LENGTH = 24
FILES = {
    "en": ("the cat sees the dog . the house is open , and the file is open .", "who sees?", ["the cat", "dog"]),
    "de": ("die katze sieht den hund . das haus ist offen , die datei auch .", "wer?", ["die katze", "hund"]),
}
# The logits of a window, then the logarithm of a sum over its tokens for each end of the answer: in float32.
LOSS = ENCODER + 16 + 2 * (LENGTH + 2)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("qa"), {}
    for language, (context, question, answers) in FILES.items():
        content = squad([context], [question, "open file?"], answers)
        first = content["data"][0]["paragraphs"][0]["qas"][0]["answers"]
        if language == "en":  # a second reference, which training does not look at
            first.append({"text": "cat", "answer_start": context.index("cat")})
        found[language] = read_questions(f"{language}={write_json(folder / f'{language}.json', content)}")
    return found


def make_reader():
    torch.manual_seed(0)
    encoder = make_encoder()
    model = BertForQuestionAnswering(encoder.config)
    model.bert.load_state_dict(encoder.state_dict())
    return model


def encode(examples, training):
    return TASK.encode(examples, make_tokenizer(), LanguageInputs(), max_length=LENGTH, training=training)


@pytest.fixture(scope="module")
def trained(sets):
    model = make_reader()
    batch = TASK.collate(encode(sets["en"], True), 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        loss = TASK.loss(model(**TASK.inputs(batch)), batch) / TASK.count_items(batch)
        loss.backward()
        optimizer.step()
    return model, float(loss.detach())


def test_from_a_file_to_scores(sets, trained):
    model, loss = trained
    assert loss < 0.1
    evaluation = {language: (part, encode(part, False)) for language, part in sets.items()}
    assert len(evaluation["en"][1]) > len(sets["en"]), "no context needs a second window: the test looks at nothing"
    scores = score_languages(model, TASK, evaluation, make_tokenizer(), batch_size=3)
    assert scores["en"].totals() == {"qa_f1": 1.0, "exact_match": 1.0}
    predictions = predict(model, TASK, evaluation["en"][1], 0)
    assert all(one.shape == (3,) for one in predictions)
    assert TASK.answers(*evaluation["en"], predictions) == ["the cat", "dog"]
    assert scores["en"].counts == {"windows": len(evaluation["en"][1])}
    assert len(scores["de"].examples["qa_f1"]) == 2 and 0 <= scores["de"].totals()["qa_f1"] <= 1


@pytest.mark.numeric
def test_loss_is_the_sum_of_each_windows_own(sets):
    """A window alone, without padding, has the loss that it has in a batch; and that is transformers'."""
    model = make_reader()
    encoded, collate = list(encode(sets["en"], True)), partial(TASK.collate, pad_token_id=0)
    together = collate(encoded)
    assert (together["attention_mask"] == 0).any()
    assert TASK.count_items(together) == len(encoded)
    alone = []
    for row in encoded:
        batch = collate([row])
        output = model(**TASK.inputs(batch))
        own = TASK.loss(output, batch)
        ends = (output.start_logits, "start_positions"), (output.end_logits, "end_positions")
        expected = sum(F.cross_entropy(logits, batch[name]) for logits, name in ends) / 2
        assert_rounding(own, expected, LOSS)
        assert_rounding(own, model(**batch).loss, LOSS)
        alone.append(own.item())
    whole = TASK.loss(model(**TASK.inputs(together)), together)
    assert_rounding(whole, sum(alone), LOSS + len(alone))
    whole.backward()
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)
