"""Links found by an encoder against loops."""

from itertools import pairwise

import pytest
import torch
from support.numeric import tolerance
from support.tiny import make_links

from hf_xalign.links.align import align_words
from hf_xalign.links.neural import encoder_links, predict_links
from hf_xalign.modeling.word_vectors import extract_word_vectors


def reference_links(vectors, method, threshold=0.001):
    """Return the intersection's links, word by word, and the smallest distance of any choice from a tie."""
    links, margin = [], 1.0
    sides = [[v.vectors[a:b, 0].double() for a, b in pairwise(v.offsets)] for v in vectors]
    for x, y in zip(*sides, strict=True):
        similarity = torch.tensor([[a @ b / (a.norm() * b.norm()) for b in y] for a in x])
        found = []
        for i, row in enumerate(similarity):
            for j, column in enumerate(similarity.T):
                if method == "argmax":
                    good = row.argmax() == j and column.argmax() == i
                    best = [line.sort().values[-2:] for line in (row, column) if len(line) > 1]
                    margin = min([margin, *((b - a).item() for a, b in best)])
                else:
                    shares = [((line - 1) / 0.005).softmax(0)[k].item() for line, k in ((row, j), (column, i))]
                    good = min(shares) > threshold
                    margin = min([margin, *(abs(share - threshold) for share in shares)])
                if good:
                    found.append([i, j])
        links.append(found)
    return links, margin


@pytest.mark.numeric
@pytest.mark.parametrize("method", ["argmax", "softmax"])
def test_encoder_links_equal_a_loop(encoder, tokenizer, aligned, method):
    encoder.double()
    source, target = aligned["source_words"][:], aligned["target_words"][:]
    links = encoder_links(encoder, tokenizer, source, target, layer=1, method=method, batch_size=3)
    vectors = [extract_word_vectors(encoder, tokenizer, words, layers=(1,)) for words in (source, target)]
    expected, margin = reference_links(vectors, method)
    # Float32 vectors of 16 numbers, for a cosine and both norms; the softmax's scale, 0.001 / 0.005, is below 1.
    assert margin > tolerance(3 * 16, dtype=torch.float32), "a choice so near a tie depends on rounding"
    assert links == expected and all(links)
    assert links == encoder_links(encoder, tokenizer, source, target, method=method)  # layer 1 of 2 is the default
    union, grown = (
        encoder_links(encoder, tokenizer, source, target, method=method, symmetrization=name)
        for name in ("union", "grow-diag-final-and")
    )
    for few, some, many in zip(links, grown, union):
        assert {*map(tuple, few)} <= {*map(tuple, some)} <= {*map(tuple, many)}
    assert sum(map(len, union)) > sum(map(len, grown)) >= sum(map(len, links))


def test_cut_words_have_no_links(encoder, tokenizer):
    long = ["cat"] + ["dog"] * 100
    (links,) = encoder_links(encoder, tokenizer, [long], [["cat"]], method="softmax", symmetrization="union")
    assert links and max(i for i, _ in links) < tokenizer.model_max_length
    (links,) = encoder_links(encoder, tokenizer, [long], [long], symmetrization="union")
    assert max(max(link) for link in links) < tokenizer.model_max_length


def test_align_words_by_encoder(encoder, tokenizer):
    data = make_links(8).remove_columns(["source_words", "target_words", "links"])
    data = data.map(lambda row: {"source": row["target"].upper()})

    def align():
        linked = align_words(data, "encoder", model=encoder, tokenizer=tokenizer)
        assert len(linked) == 8 and all(i == j for links in linked["links"] for i, j in links)
        return linked.cache_files[0]["filename"]

    file = align()
    tokenizer("cat", truncation=True, max_length=5, padding="max_length")  # leaves its settings in the tokenizer
    assert align() == file
    with torch.no_grad():
        encoder.embeddings.word_embeddings.weight.mul_(1.5)
    assert align() != file


def test_predict_links_for_one_text_and_for_several(encoder, tokenizer):
    one = predict_links(encoder, "the cat, the dog", "the cat, the dog", source_lang="de", tokenizer=tokenizer)
    assert one.source_words == ["the", "cat", ",", "the", "dog"]
    assert one.pairs() == [(word, word) for word in one.target_words]
    several = predict_links(encoder, ["house", "a dog"], ["house", "a dog"], tokenizer=tokenizer)
    assert [pair.links for pair in several] == [[[0, 0]], [[0, 0], [1, 1]]]
