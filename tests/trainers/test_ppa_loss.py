"""PPA's steps against loops written from the formulas: one sentence, one token, one number at a time."""

import copy

import pytest
import torch
from support.align_mlm import token_loss
from support.launch import STEADY, STEP, numbers, same_tensors, tensors
from support.numeric import assert_rounding
from support.ppa import SMALL, make, make_pairs
from support.runs import exact

T, M, LR = 0.05, SMALL["momentum"], STEADY["learning_rate"]
HEAD_LR = SMALL["head_learning_rate"]
BATCH, ACCUMULATION, STEPS = 3, 2, 5
# Eight pairs: steps of 3 + 3 and of 2, and in the second epoch the queue of ten still holds each pair's first key.
ROWS = [[[0, 1, 2], [3, 4, 5]], [[6, 7]]]

FORMS = {
    "default": {},
    "paper by means, mlm": {"preset": "paper", "sentence_pooling": "mean", "words": "mlm"},
    "no contrast, unsettled": {"contrast": "none", "head_warmup_ratio": 0.0},
    "in batch alone": {"contrast": "in_batch", "words": "none", "normalize": "before"},
    "in batch, settling": {"contrast": "in_batch", "words": "mlm", "head_warmup_ratio": 1.0},
}


def sentence_vector(model, ids, args):
    """z of one sentence, without padding."""
    states = model(input_ids=ids[None]).last_hidden_state[0]
    h = states[0] if args.sentence_pooling == "cls" else sum(states) / len(states)
    head = model.alignment_head["sentence"]
    if args.normalize == "before":
        h = h / torch.sqrt((h * h).sum())
    z = head.out.weight @ (head.hidden.weight @ h).clamp(min=0)
    return z if args.normalize == "before" else z / torch.sqrt((z * z).sum())


def contrast_losses(model, key_model, singles, queue, args):
    """The losses of one micro-batch's pairs (both directions' mean in a batch), and the keys."""
    queries = [sentence_vector(model, one["input_ids"][0], args) for one in singles]
    if args.contrast == "in_batch":
        others = [sentence_vector(model, one["key_input_ids"][0], args) for one in singles]
        losses = []
        for i in range(len(singles)):
            for own, rest in ((queries, others), (others, queries)):
                scores = torch.stack([(own[i] * other).sum() / T for other in rest])
                losses.append((torch.logsumexp(scores, 0) - scores[i]) / 2)
        return losses, []
    with torch.no_grad():
        keys = [sentence_vector(key_model, one["key_input_ids"][0], args) for one in singles]
    losses = []
    for query, key, one in zip(queries, keys, singles, strict=True):
        negatives = [k for pair, k in queue if args.same_pair_negatives or pair != one["pairs"].item()]
        scores = torch.stack([(query * k).sum() / T for k in [key, *negatives]])
        losses.append(torch.logsumexp(scores, 0) - scores[0])
    return losses, [(one["pairs"].item(), key) for one, key in zip(singles, keys, strict=True)]


def word_losses(model, singles, settling):
    """Of a head that settles, without a gradient for what is not the head's own."""
    losses = []
    table = model.embeddings.word_embeddings.weight
    table = table.detach() if settling else table
    for one in singles:
        width = one["mlm_input_ids"].shape[1]
        for place, label in zip(one["mlm_positions"].tolist(), one["mlm_labels"].tolist(), strict=True):
            row, token = divmod(place, width)
            ids = one["mlm_input_ids"][row][one["mlm_attention_mask"][row].bool()]
            state = model(input_ids=ids[None]).last_hidden_state[0][token]
            losses.append(token_loss(model, state.detach() if settling else state, table, label))
    return losses


def reference(trainer):
    """Five steps by plain SGD; what is logged of each, and the model, the key model, the queue's slots and pointer."""
    args, collator = trainer.args, copy.deepcopy(trainer.data_collator)
    model, key_model = copy.deepcopy(trainer.model), copy.deepcopy(trainer.model)
    slots, pointer, logged = [], 0, []
    if trainer.queue is not None:
        random = args.queue_start == "random"
        slots = [(None, key) for key in trainer.queue.keys.clone()] if random else [None] * args.queue_size
    for step in range(STEPS):
        epoch, number = divmod(step, len(ROWS))
        collator.set_epoch(epoch)
        contrast, words, new = [], [], []
        for part in ROWS[number]:
            singles = [collator([trainer.train_dataset[row]]) for row in part]
            if args.contrast != "none":
                losses, keys = contrast_losses(model, key_model, singles, [slot for slot in slots if slot], args)
                contrast += losses
                new += keys
            if args.words != "none":
                words += word_losses(model, singles, step < args.head_warmup_ratio * STEPS)
        pairs = sum(len(part) for part in ROWS[number])
        terms = [sum(contrast) / pairs] if contrast else []
        terms += [sum(words) / len(words)] if words else []
        model.zero_grad()
        sum(terms).backward()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    parameter -= (HEAD_LR if "head.words" in name else LR) * parameter.grad
            for key, query in zip(key_model.parameters(), model.parameters(), strict=True):
                key.copy_(M * key + (1 - M) * query)
        for item in new:
            slots[pointer] = item
            pointer = (pointer + 1) % len(slots)
        logged.append([sum(terms).item(), *(term.item() for term in terms)])
    return logged, model, key_model, slots, pointer


@pytest.mark.parametrize("form", FORMS)
def test_five_steps_are_those_of_the_loops(form, tmp_path):
    settings = {**STEADY, "num_train_epochs": 3, "max_steps": STEPS, **FORMS[form]}
    sizes = {"per_device_train_batch_size": BATCH, "gradient_accumulation_steps": ACCUMULATION}
    with exact():
        trainer = make(tmp_path, data=make_pairs(8), **sizes, **settings)
        trainer.model.double()
        assert (trainer.args.temperature, trainer.args.contrast == "moco") == (T, trainer.queue is not None)
        logged, model, key_model, slots, pointer = reference(trainer)
        trainer.train()
    rows = numbers(trainer)[:, 1:]  # all but the gradient's norm: the loss, then its terms
    assert_rounding(rows, torch.tensor(logged, dtype=torch.float64), STEPS * STEP, scale=max(map(max, logged)) / T)
    same_tensors(tensors(model), tensors(trainer.model), STEPS * STEP, 1 / T)
    if trainer.queue is None:
        return
    assert trainer.queue.pointer == pointer == 2  # 6 + 2 + 6 + 2 + 6 keys in ten slots
    assert trainer.queue.pairs.tolist() == [pair for pair, _ in slots]
    assert_rounding(trainer.queue.keys, torch.stack([key for _, key in slots]), STEPS * STEP, 1 / T)
    averages = tensors(key_model)
    for name, weight in tensors(trainer.momentum).items():
        name = name.removeprefix("encoder.") if name.startswith("encoder.") else f"alignment_head.sentence.{name[5:]}"
        assert_rounding(weight, averages[name], STEPS * STEP, 1 / T)
