"""Bad inputs of scores."""

import torch
from datasets import Dataset
from support.nearest import on_circle
from support.refusals import assert_refused, calls
from support.tiny import make_encoder, make_links, make_multilingual_encoder, make_tokenizer

from hf_xalign.evaluation import encode_sentences, encode_words, score_retrieval, vector_drift
from hf_xalign.evaluation.distances import word_distances
from hf_xalign.evaluation.embedding_alignment import alignment_of_entries
from hf_xalign.evaluation.lexicon import lexicon_induction
from hf_xalign.evaluation.retrieval import flatten_rows, word_retrieval
from hf_xalign.evaluation.scores import read_protocols
from hf_xalign.evaluation.sentences import score_sentences

ONES = torch.ones(3, 4)
NAN = float("nan")


def test_word_retrieval():
    source, target = on_circle(0, 40, 90, 91, 180), on_circle(92, 5, 2, 38, 179, 300)
    words = ["der", "Hund", "die", "Katze", "der"]
    links = [
        ({"links": [[0, 1], [1, 6]]}, r"links, row 1: \[1, 6\] is out of range, .* 6 target"),
        ({"links": [[0, 1], [2, 3], [0, 2]]}, r"link 0 \(0-1\): the source word has 2 links"),
        ({"source_words": words[:3], "target_words": words}, "3 source_words, 5 source_vectors"),
    ]
    row = [[1.0, 0.0], [0.0, 1.0]]
    rows = [
        (([row, row], [row, row], [[[0, 0]], [[0, 2]]]), r"row 1, links, row 0: \[0, 2\] is out of range.* 2 target"),
        (([row], [row], [[[0, 0]]], [["a"]], [["b", "c"]]), "2 source_vectors, 1 source_words: one .* of row 0"),
    ]
    shared = {"source_vectors": source, "target_vectors": target, "links": [[0, 1], [1, 3]]}
    table = calls(word_retrieval, links, **shared)
    assert_refused(table | calls(flatten_rows, rows))


def test_lexicon():
    entries = [("B", "x"), ("c", "y"), ("a", "Y"), ("d", "z"), ("e", "w")]
    rows = [
        ({"target_words": ["x", "y", "x"]}, "target words: 'x' is in rows 0 and 2"),
        ({"entries": entries}, "none of 5 entries has both words.*lower-case"),
    ]
    shared = {"source_vectors": on_circle(0, 50), "target_vectors": on_circle(0, 50, 90), "entries": [("a", "x")]}
    assert_refused(calls(lexicon_induction, rows, source_words=["a", "b"], target_words=["x", "y", "z"], **shared))


def test_embedding_alignment():
    given = (torch.eye(4), torch.eye(4), [[0, 1], [1, 2]], [1, 3])
    assert_refused(calls(alignment_of_entries, [(given, "counterpart 2 is not among the 2 candidates")]))


def test_distances():
    model, tokenizer, aligned = make_encoder(), make_tokenizer(), make_links()
    rows = aligned.to_list()
    rows[2]["links"].append([7, 0])
    words = [
        ({"dataset": aligned.select([0])}, "de: distances: 1 of 1 sentence pairs have links"),
        ({"dataset": Dataset.from_list(rows)}, "de, source: pair 2 of this language links word 7 of 2"),
        ({"max_length": 2}, "max_length=2: special tokens and prompt take 2"),
    ]
    shared = {"model": model, "tokenizer": tokenizer, "dataset": aligned}
    assert_refused(calls(word_distances, words, **shared))


def test_encoding():
    multilingual, tokenizer = make_multilingual_encoder(), make_tokenizer()
    languages = "the encoder has language embeddings for en, de"
    words = [
        ({"model": multilingual, "lang": "fr"}, f"language=fr: {languages}"),
        ({"lang": None}, "lang is None, not a language code"),
    ]
    sentences = [
        ({"texts": ["the cat", NAN]}, r"texts\[1\] is nan, not text"),
        ({"model": multilingual}, "language embeddings for en, de\\. Give the texts' language"),
    ]
    shared = {"model": make_encoder(), "tokenizer": tokenizer, "texts": "the cat"}
    assert_refused(calls(encode_words, words, **shared) | calls(encode_sentences, sentences, **shared))
    drift = [((ONES, ONES * NAN), "some are NaN"), ((0 * ONES, 0 * ONES), "the vectors are all 0")]
    assert_refused(calls(vector_drift, drift))


def test_sentence_scores():
    data = make_links(8).select_columns(["source", "target", "source_lang", "target_lang"])
    empty = data.map(lambda row, i: {"target": "" if i == 3 else "x"}, with_indices=True)
    rows = [
        ({"dataset": data.select([])}, "has no rows"),
        ({"dataset": data.select([0, 0])}, r"a pool of 1 \(different sentences in de\)"),
        ({"dataset": empty}, "row 3: tar"),
    ]
    assert_refused(calls(score_sentences, rows, model=make_encoder(), tokenizer=make_tokenizer(), dataset=data))


def test_protocols():
    rows = [
        ({"protocols": read_protocols(["identical"])}, "evaluation links have no all_links"),
        (
            {"protocols": read_protocols(["specials"]), "tokenizer": make_tokenizer(single="$A")},
            "does not add special tokens at both ends",
        ),
    ]
    links = make_links(3)
    # The second sentence has words, too: without a check, one of them would be scored.
    beyond = links.map(lambda row, k: {"links": [[len(row["source_words"]), 0]] * (k == 0)}, with_indices=True)
    rows.append(({"dataset": beyond}, r"pair 0 in de, links, row 0: \[5, 0\] is out of range"))
    two_pivots = links.map(lambda row, k: {"target_lang": ["en", "en", "fr"][k]}, with_indices=True)
    rows.append(({"dataset": two_pivots}, "target_lang is en and fr. Give the rows of each language alone"))
    shared = {"model": make_encoder(), "tokenizer": make_tokenizer(), "dataset": links}
    unknown = calls(read_protocols, [((["legacy+cao"],), r"protocol=legacy\+cao: give mao, or one or more of ident")])
    assert_refused(unknown | calls(score_retrieval, rows, **shared))
