"""Vectors and scores of an encoder against one sentence at a time."""

from __future__ import annotations

import pytest
import torch
from support.tiny import make_encoder, make_links, make_multilingual_encoder, make_tokenizer

from hf_xalign.data.encoding import word_tokenizer
from hf_xalign.errors import InputError
from hf_xalign.evaluation import encode_sentences, encode_words, score_retrieval, vector_drift
from hf_xalign.evaluation.frozen_links import read_links, write_links
from hf_xalign.modeling.word_vectors import extract_pooled, extract_word_vectors


def test_word_vectors_equal_one_sentence_at_a_time():
    model, tokenizer = make_encoder(), make_tokenizer()
    texts = ["the cat sees the dog!", "", "open"]
    found = encode_words(model, tokenizer, texts, layers=(0, -1), pooling="mean", batch_size=2)
    assert [e.words for e in found] == [["the", "cat", "sees", "the", "dog", "!"], [], ["open"]]
    for entry in found:
        if not entry.words:
            continue
        encoding = tokenizer(entry.words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            states = model.eval()(**encoding, output_hidden_states=True).hidden_states
        for number in range(len(entry.words)):
            tokens = [k for k, w in enumerate(encoding.word_ids(0)) if w == number]
            for column, layer in enumerate((0, 2)):
                torch.testing.assert_close(entry.vectors[number, column], states[layer][0, tokens].mean(0))


def test_sentence_vectors_equal_one_sentence_at_a_time():
    model, tokenizer = make_encoder(), make_tokenizer()
    texts = ["the cat sees the dog", "open file"]
    for pooling in ("mean", "cls"):
        found = encode_sentences(model, tokenizer, texts, pooling=pooling)
        for text, vector in zip(texts, found[:, 0], strict=True):
            with torch.no_grad():
                hidden = model.eval()(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            torch.testing.assert_close(vector, hidden.mean(0) if pooling == "mean" else hidden[0])
    with pytest.raises(ValueError, match="mean or cls"):
        encode_sentences(model, tokenizer, texts, pooling="max")


def test_the_models_mode_is_left_alone():
    model = make_encoder().train()
    encode_words(model, make_tokenizer(), "the cat")
    assert model.training


def test_an_unknown_layer_is_an_error():
    with pytest.raises(ValueError, match="layers 0 "):
        encode_words(make_encoder(), make_tokenizer(), "the cat", layers=(7,))


def test_an_encoder_with_language_embeddings_is_told_the_language():
    model, tokenizer = make_multilingual_encoder(), make_tokenizer()
    ids = tokenizer("the cat", return_tensors="pt").input_ids
    for language, row in (("en", 0), ("de", 1)):
        with torch.no_grad():
            expected = model(ids, token_type_ids=torch.full_like(ids, row)).last_hidden_state[0, 1:-1]
        found = encode_words(model, tokenizer, "the cat", pooling="first", lang=language)[0].vectors[:, 0]
        torch.testing.assert_close(found, expected)
        sentence = encode_sentences(model, tokenizer, "the cat", pooling="mean", lang=language)[0, 0]
        with torch.no_grad():
            hidden = model(ids, token_type_ids=torch.full_like(ids, row)).last_hidden_state[0]
        torch.testing.assert_close(sentence, hidden.mean(0))
    for encode in (encode_words, encode_sentences):
        with pytest.raises(ValueError, match="language 'fr': the encoder has language embeddings for en, de"):
            encode(model, tokenizer, "the cat", lang="fr")
    with pytest.raises(InputError, match="language embeddings for en, de: give lang"):
        encode_sentences(model, tokenizer, "the cat")
    # The same encoder for every language, were it not told.
    told = score_retrieval(model, tokenizer, make_links(8))["de"]
    del model.config.language_ids
    assert told != score_retrieval(model, tokenizer, make_links(8))["de"]


def test_an_unknown_pooling_is_an_error():
    with pytest.raises(ValueError, match="pooling=max: choose first, last, mean"):
        encode_words(make_encoder(), make_tokenizer(), "the cat", pooling="max")


def test_words_without_a_vector_are_no_queries():
    links = make_links(8)
    full = score_retrieval(make_encoder(), make_tokenizer(), links, all_occurrences=True)["de"]
    cut = score_retrieval(make_encoder(), make_tokenizer(), links, all_occurrences=True, max_length=12)["de"]
    assert cut["pool"] < full["pool"]
    assert full["pool_all"] > full["pool"]
    vectors = extract_word_vectors(make_encoder(), make_tokenizer(), links["source_words"][:], max_length=12)
    assert not vectors.present.all()
    assert vectors.vectors[~vectors.present].abs().max() == 0


def test_score_is_the_mean_of_both_directions_and_perfect_for_a_copy():
    def copy(row):
        words = row["target_words"]
        return {"source_words": words, "links": [[i, i] for i in range(len(words))]}

    unique = make_links(7).map(copy).select([0, 1, 4])
    scores = score_retrieval(make_encoder(), make_tokenizer(), unique, poolings=("mean", "last"))["de"]
    assert scores["retrieval_mean"] == 1.0
    scores = score_retrieval(make_encoder(), make_tokenizer(), make_links(7))["de"]
    directions = scores["retrieval_mean_to_pivot"] + scores["retrieval_mean_from_pivot"]
    assert scores["retrieval_mean"] == pytest.approx(directions / 2)
    assert scores["retrieval_mean_types"] >= scores["retrieval_mean"]


def test_specials_are_two_more_linked_words_a_pair():
    model, tokenizer, links = make_encoder(), make_tokenizer(), make_links(7)
    plain = score_retrieval(model, tokenizer, links)["de"]
    more = score_retrieval(model, tokenizer, links, specials=True)["de"]
    assert more["pool"] == plain["pool"] + 2 * 7
    rows = extract_pooled(model, tokenizer, links["source_words"][:2], specials=True)["mean"]
    first = len(links[0]["source_words"])
    assert rows.offsets.tolist()[1] == first + 2
    with torch.no_grad():
        batch = tokenizer(links[0]["source_words"], is_split_into_words=True, return_tensors="pt")
        hidden = model.eval()(**batch).last_hidden_state[0]
    torch.testing.assert_close(rows.vectors[first : first + 2, 0], hidden[[0, -1]])
    assert score_retrieval(model, tokenizer, links, legacy=True)["de"]["pool"] == plain["pool"]


def test_links_are_frozen_to_a_file(tmp_path):
    links = make_links(5)
    write_links(links, tmp_path / "links.jsonl")
    again = read_links(tmp_path / "links.jsonl")
    assert again["links"][:] == links["links"][:]
    lines = (tmp_path / "links.jsonl").read_text().splitlines()
    lines[2] = lines[2].replace('"links": [[0, 1]', '"links": [[0, 77]')
    (tmp_path / "links.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"links.jsonl, row 3: link 0-77 is out of range"):
        read_links(tmp_path / "links.jsonl")


def test_drift():
    vectors = torch.randn(10, 4)
    assert vector_drift(vectors, vectors) == {"cosine": pytest.approx(1.0), "relative_distance": 0.0}
    assert vector_drift(vectors, 2 * vectors) == {
        "cosine": pytest.approx(1.0),
        "relative_distance": pytest.approx(1.0),
    }
    with pytest.raises(ValueError, match="same words"):
        vector_drift(vectors, vectors[:3])


def test_word_tokenizer_refuses_a_slow_one():
    class Slow:
        is_fast = False

    with pytest.raises(InputError, match="word_ids"):
        word_tokenizer(Slow())
