"""Vectors and scores of an encoder against one sentence at a time."""

import logging

import pytest
import torch
from datasets import Dataset, concatenate_datasets
from support import nearest
from support.adapters import make_base
from support.families import save_base
from support.maps import make_rotated
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_links, make_multilingual_encoder, make_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_xalign.evaluation import encode_sentences, encode_words, score_retrieval, vector_drift, word_retrieval
from hf_xalign.evaluation.scores import read_protocols
from hf_xalign.evaluation.sentences import score_sentences
from hf_xalign.links import predict_links
from hf_xalign.modeling import set_language
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.word_vectors import extract_word_vectors
from hf_xalign.score import Score
from hf_xalign.statistics.significance import check_same_test

# Additions and multiplications on the longest path through the encoder: two layers of products with 16 and 32 inputs,
# of attention over at most 64 tokens, and of two norms over 16 numbers; the norms keep numbers below 8.
DEPTH = 2 * (4 * 16 + 2 * 32 + 64 + 2 * 32)
SCALE = 8.0


def states_of(model, batch, layer=-1, **more):
    with torch.no_grad():
        return model.eval()(**batch, **more, output_hidden_states=True).hidden_states[layer][0]


def test_a_batch_without_words_has_no_vectors():
    found = encode_words(make_encoder(), make_tokenizer(), ["", "open"], batch_size=1)
    assert [(one.words, len(one.vectors)) for one in found] == [([], 0), (["open"], 1)]


def test_an_encoder_with_language_embeddings_is_told_the_language():
    model, tokenizer = make_multilingual_encoder(), make_tokenizer()
    batch = dict(tokenizer("the cat", return_tensors="pt"))
    for language, row in (("en", 0), ("de", 1)):
        batch["token_type_ids"] = torch.full_like(batch["input_ids"], row)
        hidden = states_of(model, batch)
        found = encode_words(model, tokenizer, "the cat", pooling="first", lang=language)[0].vectors[:, 0]
        assert_rounding(found, hidden[1:-1], DEPTH, SCALE)
        sentence = encode_sentences(model, tokenizer, "the cat", pooling="mean", lang=language)[0, 0]
        assert_rounding(sentence, hidden.mean(0), DEPTH, SCALE)
    # The same encoder for every language, were it not told.
    told = score_retrieval(model, tokenizer, make_links(8))["de"]
    del model.config.language_ids
    assert told != score_retrieval(model, tokenizer, make_links(8))["de"]


def test_words_that_are_cut_off_are_no_candidates_and_count_as_misses(caplog):
    model, tokenizer, links = make_encoder(), make_tokenizer(), make_links(8)
    kept, left = {}, {}
    full = score_retrieval(model, tokenizer, links, all_occurrences=True, examples=kept)["de"]
    cut = score_retrieval(model, tokenizer, links, all_occurrences=True, max_length=12, examples=left)["de"]
    assert cut["pool"] < full["pool"] < full["pool_all"]
    asked = sum(map(len, links["links"]))
    assert f"{asked - cut['pool']:.0f} of {asked} links have a word that the encoder cuts off" in caplog.text
    for name in ("retrieval_mean", "retrieval_mean_all"):
        check_same_test([left["de"][name]], [kept["de"][name]])
        counts = left["de"][name].columns
        assert counts["gold"].sum() == 2 * asked and counts["correct"].sum() <= 2 * cut["pool"]
        assert_rounding(cut[name], counts["correct"].sum() / (2 * asked), operations=4)
    vectors = extract_word_vectors(model, tokenizer, links["source_words"][:], max_length=12)
    assert not vectors.present.all() and vectors.vectors[~vectors.present].abs().max() == 0


def test_decomposed_text_has_the_vectors_and_links_of_composed_text():
    backend = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "Tür": 2, "zu": 3}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")
    model, composed, decomposed = make_encoder(), "Tür zu", "\ufeffTu\u0308r zu"
    [words], [expected] = (encode_words(model, tokenizer, text, lang="de") for text in (decomposed, composed))
    assert words.words == expected.words == ["Tür", "zu"] and torch.equal(words.vectors, expected.vectors)
    sentences = encode_sentences(model, tokenizer, [decomposed, composed])
    assert torch.equal(sentences[0], sentences[1])
    pair = {
        "source_lang": "de",
        "target_lang": "en",
        "target": "zu Tür",
        "target_words": ["zu", "Tür"],
        "links": [[0, 1]],
    }
    other = {**pair, "source": "zu", "source_words": ["zu"], "target": "zu", "target_words": ["zu"], "links": [[0, 0]]}
    rows = [
        Dataset.from_list([{**pair, "source": text, "source_words": text.split()}, other])
        for text in (decomposed, composed)
    ]
    for score in (score_sentences, score_retrieval):
        assert score(model, tokenizer, rows[0]) == score(model, tokenizer, rows[1])
    linked = predict_links(model, decomposed, composed, source_lang="de", target_lang="de", tokenizer=tokenizer)
    assert linked.pairs() == [("Tür", "Tür"), ("zu", "zu")]


def test_the_format_of_a_dataset_changes_no_score():
    model, tokenizer, links = make_encoder(), make_tokenizer(), make_links(5)
    expected = score_retrieval(model, tokenizer, links)
    for form in ("numpy", "torch", "pandas", "arrow"):
        assert score_retrieval(model, tokenizer, links.with_format(form)) == expected


def test_the_pivot_text_of_several_languages_is_encoded_once():
    model, tokenizer, german = make_encoder(), make_tokenizer(), make_links(7)
    tongan = german.select([6, 2, 4, 2]).map(lambda row: {"source_lang": "to"})
    encoded = []
    handle = model.register_forward_hook(lambda *found: encoded.append(len(found[-1].last_hidden_state)))
    both = score_retrieval(model, tokenizer, concatenate_datasets([tongan, german]), poolings=("mean", "last"))
    handle.remove()
    distinct = len(set(map(tuple, german["target_words"][:])))
    assert sum(encoded) == distinct + sum(len(set(map(tuple, rows["source_words"][:]))) for rows in (german, tongan))
    for language, rows in (("de", german), ("to", tongan)):
        assert both[language] == score_retrieval(model, tokenizer, rows, poolings=("mean", "last"))[language]
    scores = score_sentences(model, tokenizer, concatenate_datasets([tongan, german]))
    for language, rows in (("de", german), ("to", tongan)):
        assert scores[language] == score_sentences(model, tokenizer, rows)[language]


def test_protocols_share_one_pass_and_leave_our_scores_alone():
    model, tokenizer, whole = make_encoder(), make_tokenizer(), make_links(7)
    # Our links lack one a sentence, as if its words were identical.
    links = whole.map(lambda row: {"all_links": row["links"], "links": row["links"][1:]})
    options = {"poolings": ("last",), "all_occurrences": True}
    protocols = read_protocols(["mao", "identical", "legacy+specials"])
    found = score_retrieval(model, tokenizer, links, protocols=protocols, **options)["de"]
    ours = {name: value for name, value in found.items() if "," not in name}
    assert ours == score_retrieval(model, tokenizer, links, **options)["de"]
    count, most = (sum(map(len, rows["links"])) for rows in (links, whole))
    pools = [found[f"pool{end}"] for end in ("", ", identical", ", legacy+specials", ", mao")]
    assert pools == [count, most, count + 2 * 7, most + 2 * 7]
    # The published protocol, one sentence at a time.
    sides = {"source": [], "target": []}
    for row in whole:
        for n, (side, vectors) in enumerate(sides.items()):
            encoding = tokenizer(row[f"{side}_words"], is_split_into_words=True, return_tensors="pt")
            hidden, word_ids = states_of(model, encoding), encoding.word_ids(0)
            last = [max(k for k, word in enumerate(word_ids) if word == link[n]) for link in row["links"]]
            vectors.append(hidden[[*last, 0, len(word_ids) - 1]])
    diagonal = torch.arange(most + 2 * 7)[:, None].expand(-1, 2)
    wanted = word_retrieval(*map(torch.cat, sides.values()), diagonal, legacy=True)
    for direction, name in (("to", "source_to_target"), ("from", "target_to_source")):
        assert found[f"retrieval_last_{direction}_pivot, mao"] == wanted[name]
    assert found["retrieval_last, legacy+specials"] != found["retrieval_last, mao"] != found["retrieval_last"]


def hits_of(source, target, similarity):
    """Return whether each row's partner is its nearest, int (rows,) of 0 to 2 directions, one row at a time."""
    table = nearest.scores(source, target, similarity)
    count = range(len(source))
    return [int(table[i].argmax() == i) + int(table[:, i].argmax() == i) for i in count]


def test_kept_scores_of_sentences_add_up_to_the_score_and_are_those_of_a_loop():
    model, tokenizer, links = make_encoder(), make_tokenizer(), make_links(7)
    # A sentence without links is a place of its own; other languages have their own file.
    links = concatenate_datasets([links.map(lambda row, n: {"links": row["links"] * (n != 2)}, with_indices=True),
                                  make_links(5, ["to"])])  # fmt: skip
    kept = {}
    options = {"poolings": ("mean", "last"), "all_occurrences": True, "protocols": read_protocols(["legacy+specials"])}
    scores = score_retrieval(model, tokenizer, links, examples=kept, **options)
    assert scores == score_retrieval(model, tokenizer, links, **options)
    names = {f"retrieval_{kind}{end}" for kind in ("mean", "last") for end in ("", "_all", ", legacy+specials")}
    assert kept.keys() == scores.keys() == {"de", "to"} and kept["de"].keys() == names
    for language, found in kept.items():
        for name, own in found.items():
            assert own.score() == scores[language][name], "to the last digit"
    german = links.select(range(7))
    assert len(kept["de"]["retrieval_mean"]) == 7
    sides, sentence = ([], []), []
    for number, row in enumerate(german):
        for link in row["links"]:
            sentence.append(number)
            for side, words, word in zip(sides, (row["source_words"], row["target_words"]), link, strict=True):
                encoding = tokenizer(words, is_split_into_words=True, return_tensors="pt")
                tokens = [k for k, at in enumerate(encoding.word_ids(0)) if at == word]
                side.append(states_of(model, encoding)[tokens].mean(0))
    right, queries = [0] * 7, [0] * 7
    for number, hit in zip(sentence, hits_of(*map(torch.stack, sides), "csls"), strict=True):
        right[number] += hit
        queries[number] += 2
    columns = kept["de"]["retrieval_mean"].columns
    assert columns["correct"].tolist() == right and 0 < sum(right) < sum(queries)
    assert columns["gold"].tolist() == columns["predicted"].tolist() == queries and queries[2] == 0
    # Pairs of sentences.
    data, kept = pairs(), {}
    scores = score_sentences(model, tokenizer, data, examples=kept)["de"]
    vectors = ([states_of(model, tokenizer(text, return_tensors="pt"))[0] for text in data[s]]
               for s in ("source", "target"))  # fmt: skip
    assert kept["de"]["sentence_cls"].columns["correct"].tolist() == hits_of(*map(torch.stack, vectors), "cosine")
    assert kept["de"].keys() == {"sentence_mean", "sentence_cls"}
    assert all(own.score() == scores[name] and len(own) == 8 for name, own in kept["de"].items())


def pairs(n=8, lang="de"):
    return make_links(n, [lang]).select_columns(["source", "target", "source_lang", "target_lang"])


def directions(model, data, pooling, layer=-1, languages=(None, None)):
    sides = []
    for side, language in zip(("source", "target"), languages, strict=True):
        if language:
            set_language(model, language)
        found = [states_of(model, make_tokenizer()(text, return_tensors="pt"), layer) for text in data[side]]
        pool = {"mean": lambda one: one.mean(0), "cls": lambda one: one[0], "last": lambda one: one[-1]}[pooling]
        sides.append(torch.stack([*map(pool, found)]))
    near = nearest.scores(*sides, "cosine")
    return tuple(sum(table.argmax(1) == range(len(data))) / len(data) for table in (near, near.T))


def test_sentences_against_a_loop():
    model, tokenizer, data = make_encoder(9), make_tokenizer(), pairs()
    for layer in (-1, 1):
        scores = score_sentences(model, tokenizer, data, layer=layer, batch_size=3)["de"]
        for pooling in ("mean", "cls"):
            forward, backward = directions(model, data, pooling, layer)
            assert scores[f"sentence_{pooling}_to_pivot"] == forward
            assert scores[f"sentence_{pooling}_from_pivot"] == backward
            assert scores[f"sentence_{pooling}"] == (forward + backward) / 2
            assert 0 < forward < 1 and (forward != backward or pooling == "cls")
        assert scores["sentence_mean"] != scores["sentence_cls"] and "sentence_last" not in scores
        assert [name for name in scores if Score.read(name).is_count] == ["pool_sentences"] and scores[
            "pool_sentences"
        ] == 8


def test_a_decoder_is_scored_by_its_last_token(tmp_path):
    save_base("qwen3", tmp_path)
    model, data = load_trainable(str(tmp_path)), pairs()
    scores = score_sentences(model, make_tokenizer(), data, batch_size=3)["de"]
    assert directions(model, data, "last") == (scores["sentence_last_to_pivot"], scores["sentence_last_from_pivot"])
    assert "sentence_cls" not in scores


def test_the_map_of_the_language_is_used():
    rotated, tokenizer = make_rotated(), make_tokenizer()  # maps for en and to; de comes out as it is
    scores = score_sentences(rotated, tokenizer, pairs(), poolings=("mean",))["de"]
    wanted = directions(rotated, pairs(), "mean", languages=("de", "en"))
    assert (scores["sentence_mean_to_pivot"], scores["sentence_mean_from_pivot"]) == wanted
    plain = score_sentences(make_base(), tokenizer, pairs(), poolings=("mean",))["de"]
    assert plain["sentence_mean"] != scores["sentence_mean"]


def test_repeated_sentences_are_left_out(caplog):
    model, tokenizer, data = make_encoder(), make_tokenizer(), pairs(8)
    twice = concatenate_datasets([data, data.select([2, 4])])
    with caplog.at_level(logging.INFO):
        assert score_sentences(model, tokenizer, twice) == score_sentences(model, tokenizer, data)
    assert "2 of 10 pairs repeat a sentence" in caplog.text
    rows = [("ein hund", "a dog"), ("der hund", "a dog"), ("der hund", "the dog"), ("ein hund", "dog")]
    some = Dataset.from_list([{"source": s, "target": t, "source_lang": "de", "target_lang": "en"} for s, t in rows])
    # The second is out for its target; it was not kept, so its source does not put out the third.
    assert score_sentences(model, tokenizer, some)["de"]["pool_sentences"] == 2


def rank_correlation(before, after):
    """Spearman's correlation of all pairs' cosines, one comparison at a time; ties share their mean rank."""
    ranks = []
    for vectors in (before.double(), after.double()):
        pairs = [(a @ b / (a.norm() * b.norm())).item() for i, a in enumerate(vectors) for b in vectors[i + 1 :]]
        ranks.append([sum((q < p) + (q == p) / 2 for q in pairs) for p in pairs])
    means = [sum(one) / len(one) for one in ranks]
    centered = [[value - mean for value in one] for one, mean in zip(ranks, means, strict=True)]
    products = [[a * b for a, b in zip(x, y, strict=True)] for x in centered for y in centered]
    xx, xy, _, yy = map(sum, products)
    return xy / (xx * yy) ** 0.5


def test_drift_sees_structure_that_the_cosine_hides():
    draw = torch.Generator().manual_seed(3)
    before, noise = torch.randn(2, 12, 5, generator=draw)
    after = before + noise
    # Ranks are small integers and halves, so that sums of 66 squares of them are exact.
    assert vector_drift(before, after)["rank_correlation"] == pytest.approx(rank_correlation(before, after), abs=1e-12)
    turned = vector_drift(before, 3 * before @ torch.diag(torch.tensor([-1.0, -1, -1, -1, 1])))
    assert turned["rank_correlation"] == 1 and turned["cosine"] < 0.5
    # All vectors point one way, and their order is that of the noise.
    common = 50 * torch.ones(5)
    hidden = vector_drift(before + common, noise + common)
    assert hidden["cosine"] > 0.99 and hidden["rank_correlation"] < 0.5
    assert "rank_correlation" not in vector_drift(before[:2], after[:2])  # one pair has no order
    zero = torch.zeros_like(before[:2])  # as of words without a subword
    padded = [torch.cat([zero, vectors]) for vectors in (before, after)]
    assert vector_drift(*padded) == vector_drift(before, after)
    assert vector_drift(zero, before[:2]) == {"cosine": 0.0}
    # Collapse: nothing of the order is left, also where equal vectors have cosines that differ in their last bits.
    wide = torch.randn(60, 7, generator=draw)
    for one in (torch.zeros(7), torch.ones(7), wide[0]):
        assert vector_drift(wide, one.repeat(60, 1))["rank_correlation"] == 0
        assert "rank_correlation" not in vector_drift(one.repeat(60, 1), wide)
    many = before.repeat(100, 1) + torch.randn(1200, 5, generator=draw)  # every second one is paired
    moved = many + torch.randn(1200, 5, generator=draw)
    expected = vector_drift(many[::2], moved[::2])["rank_correlation"]
    assert vector_drift(many, moved)["rank_correlation"] == expected
