"""The CRF against the enumeration of every sequence of tags."""

import itertools

import torch
from support.numeric import assert_rounding
from support.tagger import BIO, enumerate_scores, is_bio

from hf_xalign.modeling.tagger import LinearChainCRF, bio_constraint

LENGTHS = (4, 2, 1, 0, 3)
KINDS = [None, BIO]  # names of tags


def operations(tags, length):
    """Of the forward algorithm (for each word 3 for a tag before it, and 6 sums) and of the enumeration."""
    return length * (3 * tags + 6) + 3 * tags**length


def make_case(seed=0, tags=3, lengths=LENGTHS, names=None, spread=1.5):
    """A CRF with weights of every kind, and a batch: (crf, emissions, mask, pairwise)."""
    generator = torch.Generator().manual_seed(seed)
    crf = LinearChainCRF(tags, None if names is None else bio_constraint(names))
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    width = max(lengths)
    emissions = spread * torch.randn(len(lengths), width, tags, generator=generator)
    pairwise = torch.randn(len(lengths), width - 1, tags, tags, generator=generator)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    return crf, emissions, mask, pairwise


def pad(tags, width, value=-100):
    return [*tags, *[value] * (width - len(tags))]


def test_log_likelihood_of_every_sequence(float64):
    for names in KINDS:
        crf, emissions, mask, pairwise = make_case(tags=5, lengths=(3, 2, 1, 0), names=names)
        for row, length in enumerate((3, 2, 1, 0)):
            scores = enumerate_scores(crf, emissions, pairwise, row, length, names)
            stacked = torch.stack(list(scores.values()))
            n = len(scores)
            found = crf.log_likelihood(
                emissions[row].expand(n, -1, -1),
                torch.tensor([pad(tags, 3) for tags in scores]),
                mask[row].expand(n, -1),
                pairwise[row].expand(n, -1, -1, -1),
            )
            scale = stacked.abs().max().item()
            assert_rounding(found, stacked.log_softmax(0), operations(5, length), scale)
            assert_rounding(found.exp().sum(), 1.0, operations(5, length), scale)
        assert found.tolist() == [0.0]  # the sentence without a word


def test_decoding(float64):
    for seed, names in itertools.product(range(6), KINDS):
        crf, emissions, mask, pairwise = make_case(seed, 5 if names else 3, LENGTHS, names)
        found = crf.decode(emissions, mask, pairwise)
        assert found.dtype is torch.int64
        for row, length in enumerate(LENGTHS):
            scores = enumerate_scores(crf, emissions, pairwise, row, length, names)
            best = max(scores, key=scores.__getitem__)
            assert found[row].tolist() == pad(best, 4), (seed, names)


def test_nothing_pulls_a_sequence_over_the_constraint():
    wanted = bio_constraint(BIO).transitions.float()
    crf, emissions, mask, pairwise = make_case(3, 5, (9, 1, 4, 0), names=BIO)
    emissions[..., 2] += 1e6
    emissions[::2, ..., 4] += 2e6
    with torch.no_grad():
        crf.transitions += 1e6 * wanted
    found = crf.decode(emissions, mask, pairwise + 1e6 * wanted)
    for row, length in enumerate((9, 1, 4, 0)):
        assert is_bio([BIO[tag] for tag in found[row, :length].tolist()])
    tags = torch.tensor([[1, 2, 2, 0, 3, 4, 0, 1, 3]]).expand(4, -1)
    loss = crf.log_likelihood(emissions, tags, mask, pairwise).sum()
    assert loss.isfinite()
    assert all(part.isfinite().all() for part in torch.autograd.grad(loss, list(crf.parameters())))


def test_scores_far_apart_and_long_sentences():
    crf, emissions, mask, pairwise = make_case(4, lengths=(400, 250), spread=300.0)
    tags = crf.decode(emissions, mask, pairwise)
    best = crf.log_likelihood(emissions, tags.clamp(min=0), mask, pairwise)
    # The best sequence has nearly all of the probability, and none has more than 1.
    assert best.isfinite().all() and (best <= 0.5).all() and (best > -40).all()


def test_float32_under_autocast():
    crf, emissions, mask, pairwise = make_case(5)
    tags = torch.zeros(5, 4, dtype=torch.int64)
    expected, best = crf.log_likelihood(emissions, tags, mask, pairwise), crf.decode(emissions, mask, pairwise)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(crf.log_likelihood(emissions, tags, mask, pairwise), expected)
        assert torch.equal(crf.decode(emissions, mask, pairwise), best)
    half = crf.log_likelihood(emissions.bfloat16(), tags, mask, pairwise)
    assert half.dtype is torch.float32


def test_every_weight_has_a_gradient_where_sentences_have_one_word():
    crf, emissions, mask, _ = make_case(6, lengths=(1, 0, 1))
    pairwise = torch.zeros(3, 0, 3, 3, requires_grad=True)
    crf.log_likelihood(emissions, torch.ones(3, 1, dtype=torch.int64), mask, pairwise).sum().backward()
    assert all(parameter.grad is not None for parameter in (*crf.parameters(), pairwise))
    assert not crf.transitions.grad.any() and crf.start.grad.any() and crf.end.grad.any()
