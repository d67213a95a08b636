"""Links found by an encoder against loops."""

from __future__ import annotations

import pytest
import torch
from support.tiny import make_links

from hf_xalign.data.neural_alignment import default_layer, encoder_links, predict_links
from hf_xalign.data.word_alignment import align_words
from hf_xalign.errors import InputError
from hf_xalign.modeling.word_vectors import extract_word_vectors


def reference_links(vectors, source_words, target_words, method, threshold=0.001):
    """Word by word; intersection."""
    links = []
    offsets = [v.offsets.tolist() for v in vectors]
    for s in range(len(source_words)):
        similarity = torch.empty(len(source_words[s]), len(target_words[s]), dtype=torch.float64)
        for i in range(len(source_words[s])):
            for j in range(len(target_words[s])):
                x = vectors[0].vectors[offsets[0][s] + i, 0].double()
                y = vectors[1].vectors[offsets[1][s] + j, 0].double()
                similarity[i, j] = x @ y / (x.norm() * y.norm())
        found = []
        for i in range(similarity.shape[0]):
            for j in range(similarity.shape[1]):
                if method == "argmax":
                    good = similarity[i].argmax() == j and similarity[:, j].argmax() == i
                else:
                    row, column = ((x / 0.005).exp() for x in (similarity[i] - 1, similarity[:, j] - 1))
                    good = row[j] / row.sum() > threshold and column[i] / column.sum() > threshold
                if good:
                    found.append([i, j])
        links.append(found)
    return links


@pytest.mark.parametrize("method", ["argmax", "softmax"])
def test_encoder_links_equal_a_loop(encoder, tokenizer, aligned, method):
    source, target = aligned["source_words"][:], aligned["target_words"][:]
    links = encoder_links(encoder, tokenizer, source, target, layer=1, method=method, batch_size=3)
    vectors = [extract_word_vectors(encoder, tokenizer, words, layers=(1,)) for words in (source, target)]
    assert links == reference_links(vectors, source, target, method)
    assert all(links)
    assert links == encoder_links(encoder, tokenizer, source, target, method=method)  # layer 1 of 2 is the default
    union = encoder_links(encoder, tokenizer, source, target, method=method, symmetrization="union")
    grown = encoder_links(encoder, tokenizer, source, target, method=method, symmetrization="grow-diag-final-and")
    for few, some, many in zip(links, grown, union):
        assert {*map(tuple, few)} <= {*map(tuple, some)} <= {*map(tuple, many)}
    assert sum(map(len, union)) > sum(map(len, grown)) >= sum(map(len, links))


def test_the_same_sentence_links_to_itself(encoder, tokenizer):
    words = [["the", "big", "cat", "sees", "the", "dog"], ["house"], ["open", "the", "file"]]
    links = encoder_links(encoder, tokenizer, words, words, layer=-1)
    assert links == [[[i, i] for i in range(len(w))] for w in words]
    assert encoder_links(encoder, tokenizer, [["cat"], []], [[], ["cat"]]) == [[], []]
    assert default_layer(encoder) == 1


def test_cut_words_have_no_links(encoder, tokenizer):
    long = ["cat"] + ["dog"] * 100
    (links,) = encoder_links(encoder, tokenizer, [long], [["cat"]], method="softmax", symmetrization="union")
    assert links and max(i for i, _ in links) < tokenizer.model_max_length
    (links,) = encoder_links(encoder, tokenizer, [long], [long], symmetrization="union")
    assert max(max(link) for link in links) < tokenizer.model_max_length


def test_align_words_by_encoder(encoder, tokenizer):
    data = make_links(8).remove_columns(["source_words", "target_words", "links"])
    data = data.map(lambda row: {"source": row["target"].upper()})
    linked = align_words(data, "encoder", model=encoder, tokenizer=tokenizer)
    assert all(i == j for links in linked["links"] for i, j in links)
    assert len(linked) == 8
    file = linked.cache_files[0]["filename"]
    tokenizer("cat", truncation=True, max_length=5, padding="max_length")  # leaves its settings in the tokenizer
    again = align_words(data, "encoder", model=encoder, tokenizer=tokenizer)
    assert again.cache_files[0]["filename"] == file
    with torch.no_grad():
        encoder.embeddings.word_embeddings.weight.mul_(1.5)
    changed = align_words(data, "encoder", model=encoder, tokenizer=tokenizer)
    assert changed.cache_files[0]["filename"] != file


def test_predict_links_for_one_text_and_for_several(encoder, tokenizer):
    one = predict_links(encoder, "the cat, the dog", "the cat, the dog", source_lang="de", tokenizer=tokenizer)
    assert one.source_words == ["the", "cat", ",", "the", "dog"]
    assert one.pairs() == [(word, word) for word in one.target_words]
    several = predict_links(encoder, ["house", "a dog"], ["house", "a dog"], source_lang="de", tokenizer=tokenizer)
    assert [pair.links for pair in several] == [[[0, 0]], [[0, 0], [1, 1]]]
    with pytest.raises(InputError, match="2 sources and 1 targets"):
        predict_links(encoder, ["a", "b"], ["a"], source_lang="de", tokenizer=tokenizer)
    with pytest.raises(InputError, match="tokenizer="):
        predict_links(encoder, "a", "a", source_lang="de")
