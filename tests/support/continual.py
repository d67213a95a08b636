"""A small run of continual learning; as a script, the same in a process of its own: by `accelerate launch`, or to be killed.

python -m support.continual OUTPUT_DIR '{"name": {"alpha": 0.5, ...}, ...}' [--resume] [--kill_after STEP]
"""  # noqa: E501

from __future__ import annotations

import numpy as np
import torch
from datasets import Dataset
from transformers import BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification

from hf_xalign.tasks import Examples, LabelSet, QuestionTask, SequenceTask, TokenTask
from hf_xalign.trainers.continual import ContinualTrainer
from hf_xalign.trainers.continual_config import ContinualConfig
from support.launch import be_script, numbers, tensors
from support.tiny import make_encoder, make_links, make_tokenizer

LABELS = LabelSet.of(["O", "B-a"])
TOKENS, TEXTS = TokenTask(LABELS), SequenceTask(LabelSet.of(["x", "y"]))
QUESTIONS = QuestionTask(overlap=6, max_question_tokens=8, max_answer_tokens=8)
HEADS = {
    TOKENS: BertForTokenClassification,
    TEXTS: BertForSequenceClassification,
    QUESTIONS: BertForQuestionAnswering,
}
WORDS = ["the", "cat", "dog", "house", "haus", "kat", "hund", "open", "file", "is", "a", "no", "der", "das"]
SMALL = {
    "use_cpu": True,
    "disable_tqdm": True,
    "logging_steps": 1,
    "per_device_train_batch_size": 4,
    "num_train_epochs": 1,
    "max_length": 32,
}


def examples(task=TOKENS, count=16, seed=0):
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
        columns = {
            "text_a": [" ".join(words) for words in sentences],
            "label": ["xy"[len(words[0]) % 2] for words in sentences],
        }
    return Examples("en.jsonl", "en", Dataset.from_dict({**columns, "line": list(range(count))}))


def make_model(task=TOKENS, seed=0, dropout=0.0):
    encoder = make_encoder(seed=seed, dropout=dropout)
    encoder.config.num_labels = 2 if task is QUESTIONS else len(task.labels.names)
    torch.manual_seed(seed + 1)
    model = HEADS[task](encoder.config)
    model.base_model.load_state_dict(encoder.state_dict(), strict=False)
    return model


def make(folder, model=None, task=TOKENS, pairs=None, callbacks=None, **settings):
    return ContinualTrainer(
        make_model(task) if model is None else model,
        ContinualConfig(output_dir=str(folder), report_to="none", **{**SMALL, **settings}),
        task=task,
        train_dataset=[examples(task)],
        pairs=make_links(7) if pairs is None else pairs,
        reference=make_encoder(seed=3),
        eval_dataset={"en": examples(task, 6, seed=1)},
        processing_class=make_tokenizer(),
        callbacks=callbacks,
    )


def train(folder, *args, **settings):
    trainer = make(folder, *args, **settings)
    trainer.train()
    return trainer


def outcome(trainer):
    """The numbers of the log, float64 (steps, terms), and the weights."""
    log = numbers(trainer, "loss", "loss/task", "loss/align", "loss/regularizer", "grad_norm")
    return log, tensors(trainer.model)


def make_run(folder, given, **settings):
    return make(folder, make_model(dropout=given.dropout), callbacks=given.callbacks, **settings)


if __name__ == "__main__":
    be_script(make_run, outcome)
