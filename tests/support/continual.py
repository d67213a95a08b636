"""Small runs on tasks: of continual learning, of the task alone, and of a tagger."""

import numpy as np
import torch
from datasets import Dataset
from transformers import BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification

from hf_xalign.modeling.tagger import BiLSTMCRFForTokenClassification
from hf_xalign.tasks import Examples, LabelSet, QuestionTask, SequenceTask, TaggingTask, TokenTask
from hf_xalign.trainers import ContinualConfig, ContinualTrainer, TaskConfig, TaskTrainer
from support.launch import SMALL as QUIET
from support.tiny import make_encoder, make_links, make_tokenizer

LABELS = LabelSet.of(["O", "B-a"])
TOKENS, TEXTS = TokenTask(LABELS), SequenceTask(LabelSet.of(["x", "y"]))
QUESTIONS = QuestionTask(overlap=6, max_question_tokens=8, max_answer_tokens=8)
TASKS = {"tokens": TOKENS, "texts": TEXTS, "questions": QUESTIONS}
HEADS = {TOKENS: BertForTokenClassification, TEXTS: BertForSequenceClassification, QUESTIONS: BertForQuestionAnswering}
WORDS = ["the", "cat", "dog", "house", "haus", "kat", "hund", "open", "file", "is", "a", "no", "der", "das"]
SMALL = {**QUIET, "max_length": 32}


def examples(task=TOKENS, count=16, seed=0, language="en"):
    """Words labelled by their length, texts by their first word; questions whose answer is the second word."""
    rng = np.random.default_rng(seed)
    sentences = [[WORDS[k] for k in rng.integers(0, len(WORDS), rng.integers(1, 9))] for _ in range(count)]
    if task is TOKENS:
        names = [[LABELS.names[len(word) % 3] for word in sentence] for sentence in sentences]
        columns = {"tokens": sentences, "labels": names}
    elif task is QUESTIONS:
        contexts = [["the", *words] for words in sentences]
        columns = {
            "id": [str(k) for k in range(count)],
            "question": ["is open ?"] * count,
            "context": [" ".join(words) for words in contexts],
            "answers": [{"text": [words[1]], "answer_start": [4]} for words in contexts],
            "question_lang": ["en"] * count,
            "context_lang": ["en"] * count,
        }
    else:
        columns = {"text_a": list(map(" ".join, sentences)), "label": ["xy"[len(words[0]) % 2] for words in sentences]}
    return Examples(f"{language}.jsonl", language, Dataset.from_dict({**columns, "line": list(range(count))}))


def make_model(task=TOKENS, seed=0, dropout=0.0):
    encoder = make_encoder(seed=seed, dropout=dropout)
    encoder.config.num_labels = 2 if task is QUESTIONS else len(task.labels.names)
    torch.manual_seed(seed + 1)
    model = HEADS[task](encoder.config)
    model.base_model.load_state_dict(encoder.state_dict(), strict=False)
    return model


def make(folder, model=None, task=TOKENS, pairs=None, count=16, reference=None, callbacks=None, **settings):
    return ContinualTrainer(
        make_model(task) if model is None else model,
        ContinualConfig(output_dir=str(folder), **{**SMALL, **settings}),
        task=task,
        train_dataset=[examples(task, count)],
        pairs=make_links(pairs or 7) if pairs is None or isinstance(pairs, int) else pairs,
        reference=reference or make_encoder(seed=3),
        eval_dataset={"en": examples(task, 6, seed=1)},
        processing_class=make_tokenizer(),
        callbacks=callbacks,
    )


def make_task(folder, model=None, task=TOKENS, count=16, train=None, evaluation=None, callbacks=None, **settings):
    return TaskTrainer(
        make_model(task) if model is None else model,
        TaskConfig(output_dir=str(folder), **{**SMALL, **settings}),
        task=task,
        train_dataset=train or [examples(task, count)],
        eval_dataset=evaluation,
        processing_class=make_tokenizer(),
        callbacks=callbacks,
    )


def make_tagger(folder, count=16, seed=0, dropout=0.0, callbacks=None, **settings):
    """Make a trainer of a tagger on the frozen encoder; the dropout is the tagger's."""
    encoder = make_encoder(seed=seed)
    torch.manual_seed(seed + 1)
    model = BiLSTMCRFForTokenClassification.from_encoder(
        encoder, LABELS.names, layers=[-2, -1], lstm_size=6, dropout=dropout
    )
    task = TaggingTask(LABELS)
    return make_task(
        folder, model, task, train=[examples(TOKENS, count)], callbacks=callbacks, head="tagger", **settings
    )
