"""Retrieval of words and sentences, lexicons, embeddings and alignment error, by hand and against brute force."""

import numpy as np
import pytest
import torch
from support.nearest import on_circle, scores, vectors
from support.numeric import assert_rounding

from hf_xalign.errors import InputError
from hf_xalign.evaluation import lexicon_induction, sentence_retrieval, word_retrieval
from hf_xalign.evaluation.alignment_error import alignment_error_rate
from hf_xalign.evaluation.embedding_alignment import alignment_of_entries, alignment_of_model
from hf_xalign.modeling import add_language_embeddings
from hf_xalign.search import csls

# Directions in the plane, so that who is nearest to whom can be seen.
SOURCE, TARGET = on_circle(0, 40, 90, 91, 180), on_circle(92, 5, 2, 38, 179, 300)
LINKS = [[0, 1], [1, 3], [2, 0], [4, 4]]
SOURCE_WORDS = ["der", "Hund", "die", "Katze", "der"]
TARGET_WORDS = ["the", "the", "a", "dog", "the", "cat"]


def test_pools_and_types_by_hand():
    def score(pool, target_words=TARGET_WORDS):
        words = {"source_words": SOURCE_WORDS, "target_words": target_words}
        return word_retrieval(SOURCE, TARGET, LINKS, similarity="cosine", pool=pool, **words)

    names = ["source_to_target", "target_to_source", "mean"]
    names += [f"type_{name}" for name in names]
    # Linked sources at 0, 40, 90, 180 and targets at 5, 38, 92, 179: every word finds its partner.
    assert score("linked") == {**dict.fromkeys(names, 1.0), "source_pool": 4, "target_pool": 4, "queries": 4}
    # Source 0 meets the unlinked target at 2 degrees ("a", not "the"); target 92 meets the unlinked source at 91
    # ("Katze").
    assert score("all") == {**dict.fromkeys(names, 0.75), "source_pool": 5, "target_pool": 6, "queries": 4}
    other = score("all", ["the", "the", "the", "dog", "the", "cat"])
    assert (other["source_to_target"], other["type_source_to_target"]) == (0.75, 1.0), "another occurrence of a word"


def test_directions_and_links_in_any_order():
    generator = torch.Generator().manual_seed(0)
    source, target = vectors(0, 80, dim=8), vectors(1, 90, dim=8)
    links = torch.stack([torch.randperm(n, generator=generator)[:50] for n in (80, 90)], 1)
    target[links[:, 1]] = source[links[:, 0]] + 0.8 * target[links[:, 1]]
    for pool, similarity, k in (("linked", "csls", 10), ("all", "csls", 10), ("all", "csls", 1), ("all", "cosine", 1)):
        found = word_retrieval(source, target, links, pool=pool, similarity=similarity, k=k)
        legacy = word_retrieval(source.numpy(), target.numpy(), links.numpy(), pool=pool, legacy=True, k=k)
        assert legacy["mean"] != found["mean"]
        pairs = links.tolist() if pool == "all" else [[n, n] for n in range(50)]
        sides = (source, target) if pool == "all" else (source[links[:, 0]], target[links[:, 1]])
        table = scores(*sides, similarity, k)
        forward = sum(table[i].argmax() == j for i, j in pairs) / 50
        backward = sum(table[:, j].argmax() == i for i, j in pairs) / 50
        assert (found["source_to_target"], found["target_to_source"]) == (forward, backward) and forward != backward
        assert_rounding(found["mean"], (forward + backward) / 2, operations=2)


def test_alignment_error_by_hand():
    names, zero, sure = ("precision", "recall", "alignment_error_rate", "f1"), [[0, 0]], [[0, 0], [1, 1]]
    mixed = [[*zero, [1, 2], [2, 1]], [[0, 1]]], [sure, sure], [[[1, 2], [3, 3]], [[0, 1]]]
    for arguments, wanted in [
        # A = 4; in S: 0-0 of the first pair; in P: that one, 1-2 and the second pair's 0-1; S = 4.
        (mixed, (3 / 4, 1 / 4, 1 - (1 + 3) / (4 + 4), 2 * (3 / 4) * (1 / 4) / (3 / 4 + 1 / 4))),
        # Without possible links F1 is 1 - AER; with them, sure ones are possible and possible ones earn no recall.
        (([[*sure, [2, 0]]], [[*sure, [2, 2], [3, 3]]]), (2 / 3, 1 / 2, 3 / 7, 4 / 7)),
        (([sure], [zero], [[[1, 1]]]), (1, 1, 0, 1)),
        (([[[5, 5]]], [zero], [[[5, 5]]]), (1, 0, 0.5, 0)),
        # Nothing; another pair's link, twice; repeats count once.
        (([[], []], [sure, [[0, 1]]]), (0, 0, 1, 0)),
        (([zero * 2, []], [[], zero]), (0, 0, 1, 0)),
        (([zero * 2], [zero]), (1, 1, 0, 1)),
    ]:
        found = alignment_error_rate(*arguments)
        assert tuple(found) == names
        assert_rounding([*found.values()], wanted, operations=8)


def sentences(seed, rows=60, dim=10, noise=0.5, hubs=True):
    source = vectors(seed, rows, dim, hubs)
    return source, source + noise * vectors(seed + 50, rows, dim)


def test_sentences_against_brute_force(monkeypatch):
    source, target = sentences(1)
    for band in (2**26, 1000):
        monkeypatch.setattr(csls, "_BAND", band)
        for similarity, k in (("cosine", 1), ("csls", 10), ("margin", 4), ("margin", 1)):
            table = scores(source, target, similarity, k)
            right = [np.mean(nearest == np.arange(60)) for nearest in (table.argmax(1), table.argmax(0))]
            found = sentence_retrieval(source, target, similarity=similarity, k=k)
            assert list(found) == ["source_to_target", "target_to_source", "mean", "queries"]
            assert_rounding([*found.values()], [*right, sum(right) / 2, 60], operations=2)
            assert 0.1 < right[0] < 0.95 and right[0] != right[1]


def test_the_measures_differ_and_have_their_papers_k():
    source, target = sentences(2, rows=300)
    found = {name: sentence_retrieval(source, target, similarity=name) for name in ("cosine", "csls", "margin")}
    assert len({each["mean"] for each in found.values()}) == 3
    assert found["csls"] == sentence_retrieval(source, target, similarity="csls", k=10)
    assert found["margin"] == sentence_retrieval(source, target, similarity="margin", k=4)


@pytest.fixture(scope="module")
def vocabulary():
    source = vectors(0, 90, dim=8, hubs=True)
    target = torch.cat([source[:70] + 0.4 * vectors(1, 70, dim=8), vectors(2, 40, dim=8, hubs=True)])
    words = [f"s{n}" for n in range(90)], [f"t{n}" for n in range(110)]
    # Words of either side without a vector, and two entries twice.
    entries = [(f"s{n}", f"t{m}") for n in range(0, 130, 2) for m in (n, n + 3, n + 60)]
    return source, target, *words, entries + entries[:2]


def loop_lexicon(source, target, source_words, target_words, entries, depths, similarity, k):
    order = (-scores(source, target, similarity, k)).argsort(1)
    words = {one for one, _ in entries}
    golds = {word: {other for one, other in entries if one == word and other in target_words} for word in words}
    queries = [word for word in words if word in source_words and golds[word]]
    found = {}
    for depth in depths:
        nearest = {word: {target_words[j] for j in order[source_words.index(word), :depth]} for word in queries}
        right = sum(bool(nearest[word] & golds[word]) for word in queries)
        found |= {f"p@{depth}": right / len(queries), f"p@{depth}_oov_wrong": right / len(words)}
    covered = sum(one in source_words and other in target_words for one, other in set(entries))
    found |= {"entries": len(set(entries)), "entries_covered": covered, "test_words": len(words)}
    found |= {"queries": len(queries), "source_vocabulary": len(source_words), "target_vocabulary": len(target_words)}
    return found | {"coverage": covered / len(set(entries)), "coverage_words": len(queries) / len(words)}


def test_against_a_loop(vocabulary, monkeypatch):
    depths = (1, 5, 10, 500)  # more than the vocabulary is the vocabulary
    for band, similarity in ((2**26, "csls"), (1000, "csls"), (1000, "cosine")):
        monkeypatch.setattr(csls, "_BAND", band)
        found = lexicon_induction(*vocabulary, ks=depths, similarity=similarity, k=6, bootstrap=0)
        wanted = loop_lexicon(*vocabulary, depths, similarity, 6)
        assert found.keys() == wanted.keys()
        assert_rounding([*found.values()], [wanted[name] for name in found], operations=90, scale=1)
        assert 0.1 < found["p@1"] < found["p@5"] < found["p@10"] < found["p@500"] == 1


def test_intervals(vocabulary):
    found, other = lexicon_induction(*vocabulary), lexicon_induction(*vocabulary, seed=1)
    assert found == lexicon_induction(*vocabulary)
    for name in ("p@1", "p@5", "p@10", "p@1_oov_wrong"):
        width = found[f"{name}_high"] - found[f"{name}_low"]
        assert found[f"{name}_low"] < found[name] == other[name] < found[f"{name}_high"]
        deviation = np.sqrt(found[name] * (1 - found[name]) / found["test_words"])
        assert 2 * deviation < width < 7 * deviation
    assert any(found[name] != other[name] for name in found), "the seed is used"


def hits_of(sources, candidates, golds, similarity="cosine"):
    """The hits, and whom each source finds; `golds` is a set for each source."""
    found = scores(sources, candidates, similarity).argmax(1).tolist()
    return [near in gold for near, gold in zip(found, golds, strict=True)], found


def test_one_and_several_counterparts():
    sources, candidates = sentences(0, 70, 8, 0.6, hubs=False)
    order = torch.randperm(70, generator=torch.Generator().manual_seed(1)).tolist()
    for similarity in ("cosine", "csls"):
        hits, found = hits_of(sources, candidates, [{n} for n in order], similarity)
        result = alignment_of_entries(sources, candidates, list(enumerate(order)), similarity=similarity)
        assert result.hits.tolist() == hits and result.nearest.tolist() == found and result.candidates == 70
    found = hits_of(sources, candidates, [()] * 70)[1]
    golds = [{n, *found[n : n + 1]} if n % 3 == 0 else {n} for n in range(70)]  # a third have their nearest as well
    several, _ = hits_of(sources, candidates, golds)
    result = alignment_of_entries(sources, candidates, [(n, gold) for n, own in enumerate(golds) for gold in own])
    assert result.hits.tolist() == several and result.share == np.mean(several) and 0.1 < result.share < 0.99
    given = result.scores(bootstrap=200)
    assert given["alignment_low"] < given["alignment"] == result.share < given["alignment_high"]
    assert (given["sources"], given["candidates"]) == (70, 70)
    assert set(result.scores(bootstrap=0)) == {"alignment", "sources", "candidates"}


def test_of_a_model_keeps_the_order_of_the_entries(encoder):
    embeddings = encoder.get_input_embeddings().weight.detach()
    entries = torch.tensor([[9, 50], [3, 51], [9, 52], [7, 50], [3, 53]])
    with torch.no_grad():
        embeddings[51] = 2 * embeddings[3]
        embeddings[52] = embeddings[9]
        embeddings[90] = embeddings[7]
    found = alignment_of_model(encoder, entries)
    pool = [50, 51, 52, 53]
    hits, near = hits_of(embeddings[[9, 3, 7]], embeddings[pool], [{0, 2}, {1, 3}, {0}])
    assert found.hits.tolist() == hits and found.nearest.tolist() == [pool[n] for n in near]
    assert found.hits[:2].all() and found.candidates == 4 and found.share == np.mean(hits)
    wider = alignment_of_model(encoder, entries, candidates=[53, 90, 52, 51, 50, 90])
    assert wider.nearest.tolist()[2] == 90 and not wider.hits[2] and wider.candidates == 5


def test_of_a_model_with_language_embeddings(encoder):
    encoder = encoder.double()
    with pytest.raises(InputError, match="language=en: the encoder has language embeddings for no language"):
        alignment_of_model(encoder, [[3, 50]], languages=("en", "de"))
    add_language_embeddings(encoder, ["en", "de", "nl"])
    words = encoder.get_input_embeddings().weight.detach()
    types = encoder.embeddings.token_type_embeddings.weight.detach()
    types.copy_(torch.linspace(-1, 1, types.numel(), dtype=types.dtype).reshape(types.shape).sin())
    entries = torch.stack([torch.arange(10, 50), torch.arange(50, 90)], 1)
    near = []
    for source in range(10, 50):
        cosines = []
        for target in range(50, 90):
            a, b = words[source] + types[0], words[target] + types[2]
            cosines.append(float((a * b).sum() / (a * a).sum().sqrt() / (b * b).sum().sqrt()))
        near.append(50 + int(np.argmax(cosines)))
    assert alignment_of_model(encoder, entries, languages=("en", "nl")).nearest.tolist() == near
    assert alignment_of_model(encoder, entries).nearest.tolist() != near
