"""The gradient in chunks; the momentum encoder and its queue, with five steps of MoCo against loops."""

import contextlib
import copy

import pytest
import torch
from safetensors.torch import load_file
from support.families import BACKWARD
from support.momentum import SIZE, M, make_query, move, sentences, trained_momentum
from support.numeric import assert_rounding
from support.tiny import make_encoder
from torch import nn

from hf_xalign.losses import moco_infonce, sentence_infonce
from hf_xalign.modeling.contrast.cached_gradient import cached_backward
from hf_xalign.modeling.contrast.heads import SentenceHead, pool_sentences
from hf_xalign.modeling.contrast.momentum import RANDOM, KeyQueue, MomentumEncoder, load_momentum, save_momentum

T = 0.1
# Each step is a forward and a backward pass of the encoder, and the numbers of a step come from the step before.
STEPS = 5 * BACKWARD


def averaged(*modules):
    return [parameter for module in modules for parameter in module.parameters()]


def loop_vector(encoder, head, ids, mask, pooling, normalize):
    length = int(mask.sum())
    states = encoder(input_ids=ids[None, :length], attention_mask=mask[None, :length]).last_hidden_state[0]
    h = states[0] if pooling == "cls" else sum(states[k] for k in range(length)) / length
    if normalize == "before":
        h = h / sum(x * x for x in h).sqrt()
    hidden = [max((row * h).sum(), torch.zeros(())) for row in head.hidden.weight]
    z = torch.stack([sum(w * x for w, x in zip(row, hidden, strict=True)) for row in head.out.weight])
    return z if normalize == "before" else z / sum(x * x for x in z).sqrt()


def loop_steps(steps, pooling, normalize, masked, size):
    encoder, head = make_query(normalize)
    key_encoder, key_head = copy.deepcopy((encoder, head))
    parameters = averaged(encoder, head)
    queue: list = [None] * size
    pointer = 0
    for pairs, left, right in steps:
        losses, keys = [], []
        for k, pair in enumerate(pairs):
            query = loop_vector(encoder, head, left[0][k], left[1][k], pooling, normalize)
            with torch.no_grad():
                key = loop_vector(key_encoder, key_head, right[0][k], right[1][k], pooling, normalize)
            terms = [(query * key).sum() / T]
            for slot in queue:
                if slot is not None and not (masked and slot[0] == pair):
                    terms.append((query * slot[1]).sum() / T)
            losses.append(sum(torch.exp(term - terms[0]) for term in terms).log())
            keys.append((pair, key))
        loss = sum(losses) / len(losses)
        for parameter in parameters:
            parameter.grad = None
        loss.backward()
        with torch.no_grad():
            for parameter in parameters:
                parameter -= 0.05 * parameter.grad
            for key, query in zip(averaged(key_encoder, key_head), parameters, strict=True):
                key.copy_(M * key + (1 - M) * query)
        for item in keys:
            queue[pointer] = item
            pointer = (pointer + 1) % size
        yield loss.item(), queue, averaged(key_encoder, key_head)


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("pooling", "normalize", "masked"), [("cls", "before", True), ("mean", "after", True), ("cls", "before", False)]
)
def test_five_steps_are_those_of_the_loops(pooling, normalize, masked, float64):
    """Steps of 3 pairs, in micro-batches of 2 and 1, into 7 slots; the pairs come again while their keys are there."""
    numbers = [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1], [2, 3, 4]]
    steps = [(pairs, sentences(3, 2 * k), sentences(3, 2 * k + 1)) for k, pairs in enumerate(numbers)]
    encoder, head = make_query(normalize)
    momentum, queue = MomentumEncoder(encoder, head, pooling=pooling), KeyQueue(7, SIZE)
    optimizer = torch.optim.SGD(averaged(encoder, head), lr=0.05)
    for (pairs, left, right), (expected, slots, averages) in zip(
        steps, loop_steps(steps, pooling, normalize, masked, 7), strict=True
    ):
        optimizer.zero_grad()
        total, new = 0.0, []
        pairs = torch.tensor(pairs)
        for part in (slice(0, 2), slice(2, 3)):
            hidden = encoder(input_ids=left[0][part], attention_mask=left[1][part]).last_hidden_state
            queries = head(pool_sentences(hidden, left[1][part], pooling))
            new.append(momentum.encode(right[0][part], right[1][part]))
            given = {"pairs": pairs[part]} if masked else {}
            loss = moco_infonce(queries, new[-1], queue.keys, temperature=T, queue_pairs=queue.pairs, **given)
            (loss.sum() / 3).backward()
            total += loss.sum().item() / 3
        optimizer.step()
        momentum.update(encoder, head, M)
        queue.enqueue(torch.cat(new), pairs)
        assert queue.keys.dtype == torch.float64
        assert_rounding(total, expected, STEPS, scale=1 / T)
        for slot, key, pair in zip(slots, queue.keys, queue.pairs.tolist(), strict=True):
            assert pair == (-1 if slot is None else slot[0])
            assert_rounding(key, torch.zeros(SIZE) if slot is None else slot[1], STEPS, scale=1 / T)
        for own, average in zip(momentum.parameters(), averages, strict=True):
            assert_rounding(own, average, STEPS, scale=1 / T)
    assert total > 0.1


@pytest.mark.numeric
def test_averages_are_of_every_parameter_once_and_buffers_follow(float64, tmp_path):
    encoder, head = make_query()
    encoder.decoder = nn.Linear(16, 160)
    encoder.decoder.weight = encoder.embeddings.word_embeddings.weight
    encoder.register_buffer("steps", torch.tensor(0))
    momentum = MomentumEncoder(encoder, head)
    before = [p.clone() for p in momentum.parameters()]
    move(encoder, head)
    encoder.steps += 7
    momentum.update(encoder, head, 0.999)
    for own, old, query in zip(momentum.parameters(), before, averaged(encoder, head), strict=True):
        assert_rounding(own, 0.999 * old + (1 - 0.999) * query, operations=4)
        assert not torch.equal(own, old)
    assert momentum.encoder.steps == 7 and momentum.encoder.steps is not encoder.steps
    assert momentum.encoder.decoder.weight is momentum.encoder.embeddings.word_embeddings.weight
    save_momentum(tmp_path / "momentum.safetensors", momentum, KeyQueue(4, SIZE))
    assert "encoder.decoder.weight" not in load_file(tmp_path / "momentum.safetensors")


@pytest.mark.numeric
def test_half_precision_weights_have_averages_in_float32():
    encoder, head = make_query()
    encoder.to(torch.bfloat16).embeddings.requires_grad_(False)
    momentum = MomentumEncoder(encoder, head)
    assert {p.dtype for p in momentum.parameters()} == {torch.float32} and not momentum.shared
    weight, query = (e.encoder.layer[0].output.dense.weight for e in (momentum.encoder, encoder))
    assert query.dtype == torch.bfloat16 and encoder.embeddings.word_embeddings.weight.dtype == torch.bfloat16
    before = weight.clone()
    move(encoder)
    for _ in range(3):
        momentum.update(encoder, head, 0.999)
    expected = query.double() + 0.999**3 * (before.double() - query.double())
    assert_rounding(weight, expected, operations=3 * 4)
    assert torch.isfinite(momentum.encode(*sentences(2, 0))).all()


@pytest.mark.numeric
def test_it_is_a_frozen_copy_that_shares_what_is_frozen_and_leaves_the_objectives_head_out(float64):
    encoder, head = make_query()
    encoder.embeddings.requires_grad_(False)
    encoder.alignment_head = nn.ModuleDict({"sentence": head, "other": nn.Linear(16, 160)})
    momentum = MomentumEncoder(encoder, head)
    assert not any(p.requires_grad for p in momentum.parameters())
    assert any(p.requires_grad for p in encoder.encoder.parameters()) and head.out.weight.requires_grad
    own, query = dict(momentum.encoder.named_parameters()), dict(encoder.named_parameters())
    assert set(query) - set(own) == {name for name in query if name.startswith("alignment_head")}
    assert all((own[name] is query[name]) == name.startswith("embeddings") for name in own)


def test_encoder_head_and_queue_come_back_bit_for_bit(tmp_path):
    for frozen in (True, False):
        path = tmp_path / str(frozen) / "momentum.safetensors"
        (momentum, queue), (fresh, fresh_queue) = trained_momentum(frozen), trained_momentum(frozen, steps=0)
        save_momentum(path, momentum, queue)
        assert [p.name for p in path.parent.iterdir()] == ["momentum.safetensors"]
        names = set(load_file(path))
        assert any(name.startswith("encoder.embeddings") for name in names) != frozen
        assert {"head.hidden.weight", "head.out.weight", "queue.keys", "queue.pointer"} < names
        pointers = {name: p.data_ptr() for name, p in fresh.named_parameters()}
        load_momentum(path, fresh, fresh_queue)
        for one, other in ((momentum, fresh), (queue, fresh_queue)):
            assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())
        assert pointers == {name: p.data_ptr() for name, p in fresh.named_parameters()}
        assert queue.pointer == 4 and queue.filled == 5


def test_the_head_has_its_weights_precision_under_autocast(float64):
    vectors = torch.randn(4, 16)
    for normalize in ("before", "after"):
        head = SentenceHead(16, SIZE, normalize=normalize)
        plain = head(vectors)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(head(vectors), plain)
    assert head.float()(vectors.bfloat16()).dtype == torch.float32


@pytest.mark.numeric
def test_a_random_start_is_the_seeds_and_of_length_one():
    state = torch.get_rng_state()
    queue, again, other = (KeyQueue(20, 300, start="random", seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(queue.keys, again.keys) and not torch.equal(queue.keys, other.keys)
    assert_rounding(queue.keys.norm(dim=1), torch.ones(20), operations=2 * 300)
    assert queue.pairs.tolist() == [RANDOM] * 20 and queue.filled == 0


CHUNKS = [3, 2, 4]
TEMPERATURE = 0.05


def setup(dropout):
    encoder = make_encoder(dropout=dropout).train()
    head = SentenceHead(16, 6, normalize="after")
    generator = torch.Generator().manual_seed(0)
    chunks = [torch.randint(5, 160, (2, size, 7), generator=generator) for size in CHUNKS]

    def encode(ids):
        flat = ids.flatten(0, 1)
        mask = torch.ones_like(flat)
        hidden = encoder(input_ids=flat, attention_mask=mask).last_hidden_state
        return head(pool_sentences(hidden, mask, "mean")).view(*ids.shape[:2], -1)

    return encode, chunks, [*encoder.parameters(), *head.parameters()]


def contrast(vectors):
    source, target = torch.cat(vectors, dim=1)
    return sentence_infonce(source, target, temperature=TEMPERATURE).mean()


@pytest.mark.numeric
@pytest.mark.parametrize(("dropout", "autocast"), [(0.0, False), (0.2, False), (0.2, True)])
def test_gradients_and_random_numbers_are_those_of_the_plain_backward(dropout, autocast, float64):
    results = []
    for cached in (False, True):
        encode, chunks, parameters = setup(dropout)
        torch.manual_seed(5)
        with torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext():
            if cached:
                loss = cached_backward(encode, chunks, contrast, backward=lambda scalar: (scalar / 4).backward())
                assert not loss.requires_grad
            else:
                loss = contrast([encode(chunk) for chunk in chunks])
        if not cached:
            (loss / 4).backward()
        results.append((loss, [p.grad for p in parameters], torch.get_rng_state()))
    (loss, gradients, state), (cached_loss, cached_gradients, cached_state) = results
    # Both run the same kernels on the same chunks.
    assert torch.equal(loss, cached_loss) and torch.equal(state, cached_state)
    scale = max(float(g.abs().max()) for g in gradients)
    assert scale > 0.1
    # In bfloat16 the chunks' gradients of a weight are rounded before they are added, in either order.
    rounding = (2 * len(CHUNKS), scale, torch.bfloat16) if autocast else (BACKWARD, scale / TEMPERATURE)
    for one, other in zip(gradients, cached_gradients, strict=True):
        assert_rounding(other, one, *rounding)


def test_one_chunk_has_a_graph_at_a_time_and_the_last_alone_is_synchronised():
    encode, chunks, _ = setup(0.0)
    log, alive = [], []

    def watched(chunk):
        vectors = encode(chunk)
        log.append(("encode", chunk.shape[1], vectors.requires_grad, len(alive)))
        return vectors

    @contextlib.contextmanager
    def no_sync():
        alive.append(1)
        yield
        alive.pop()

    def backward(scalar):
        log.append(("backward", len(alive)))
        scalar.backward()

    cached_backward(watched, chunks, contrast, backward=backward, no_sync=no_sync)
    first = [("encode", size, False, 1) for size in CHUNKS]
    second = [
        entry
        for size, quiet in zip(CHUNKS, (1, 1, 0), strict=True)
        for entry in (("encode", size, True, quiet), ("backward", quiet))
    ]
    assert log == first + second
