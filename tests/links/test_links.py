"""Links of every aligner, their symmetrization and filters, and the cache that they lie in."""

import ctypes
import logging
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import get_args
from unittest.mock import patch

import numpy as np
import pytest
import thot
import torch
from datasets import Dataset, Features, Translation, TranslationVariableLanguages, Value, concatenate_datasets
from hypothesis import given
from hypothesis import strategies as st
from peft import get_peft_model
from support.numeric import tolerance
from support.text import bitext
from support.tiny import make_encoder, make_links, make_tokenizer
from thot.alignment import EflomalAlignmentModel, FastAlignModel

from hf_xalign.cli.main import main
from hf_xalign.data.pretraining.rows import encode_sentence_pairs
from hf_xalign.errors import InputError
from hf_xalign.links import align as word_alignment
from hf_xalign.links import job
from hf_xalign.links.align import align_shards, align_words
from hf_xalign.links.counts import LinkStatistics, link_statistics
from hf_xalign.links.files import DictionaryLinker
from hf_xalign.links.neural import choose_layer, encoder_links, predict_links
from hf_xalign.links.statistical import FORWARD, STATISTICAL_ALIGNERS, StatisticalLinker, fit
from hf_xalign.links.symmetrization import LinkFilters, Symmetrization, symmetrize
from hf_xalign.modeling import XAlignConfig
from hf_xalign.modeling.xalign.tuner import find_top

VOCABULARY = ["cat", "dog", "hut", "tree", "sees", "likes", "big", "small", "red", "blue", "the", "a", "runs", "eats"]


def parallel(n=120, source_lang="de", seed=0, backwards=False):
    """Return a corpus of a toy language that translates word by word, in the same order or backwards."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(VOCABULARY, size=rng.integers(3, 7), replace=False).tolist() for _ in range(n)]
    source = [" ".join([word[::-1] + source_lang for word in row][:: -1 if backwards else 1]) for row in rows]
    return bitext(*zip(source, map(" ".join, rows)), langs=[source_lang]).add_column("number", list(range(n)))


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def fits(monkeypatch):
    seen = []

    def spy(aligner, words, directions, **options):
        seen.append(list(words))
        return fit(aligner, seen[-1], directions, **options)

    monkeypatch.setattr(word_alignment.statistical, "fit", spy)
    return seen


@pytest.mark.parametrize("aligner", STATISTICAL_ALIGNERS)
def test_statistical_aligners_find_a_word_by_word_translation(aligner):
    data = parallel()
    linked = align_words(data, aligner)
    assert linked.column_names == [*data.column_names, "source_words", "target_words", "links"]
    assert [row["source"].split() for row in linked] == linked["source_words"][:]
    links = [i == j for row in linked["links"] for i, j in row]
    assert len(links) > 300 and sum(links) / len(links) > 0.9
    assert linked["number"] == sorted(linked["number"])


def test_fast_align_trains_five_iterations_and_eflomal_its_schedule():
    rounds = []
    words = [(row["source"].split(), row["target"].split()) for row in parallel(30)]
    with patch.object(FastAlignModel, "train", lambda model: rounds.append(model), create=True):
        fit("fast_align", words, [FORWARD])
    assert len(rounds) == 5
    with patch.object(EflomalAlignmentModel, "train", lambda model: rounds.append(model), create=True):
        [model] = fit("eflomal", words, [FORWARD])
    assert len(rounds) - 5 == model.scheduled_iterations > 10


def test_each_language_pair_has_its_own_model_and_rows_keep_their_order():
    alone = {lang: parallel(80, lang, seed=seed) for seed, lang in enumerate(("de", "bn"))}
    mixed = concatenate_datasets(list(alone.values())).shuffle(seed=3)
    linked = align_words(mixed)
    with patch.object(word_alignment, "_PART", 50), patch.object(job, "VERSION", 0):
        assert align_words(mixed)[:] == linked[:]
    alone = {lang: align_words(data) for lang, data in alone.items()}
    kept = [row["number"] for row in mixed if row["number"] in set(alone[row["source_lang"]]["number"])]
    assert linked["number"] == kept
    # Fitted on the same pairs in another order, the model's sums differ in the last digits at most.
    links = {(row["source_lang"], row["number"]): row["links"] for row in linked}
    for lang, data in alone.items():
        assert np.mean([links[lang, row["number"]] == row["links"] for row in data]) > 0.95


def test_extra_data_and_sample_train_the_aligner_only(fits):
    data, extra = parallel(3, seed=5, backwards=True), parallel(200, seed=6, backwards=True)
    linked = align_words(data, extra_data=extra)
    assert linked["number"][:] == [0, 1, 2]
    sizes = map(len, linked["source_words"])
    assert linked["links"][:] == [[[i, size - 1 - i] for i in range(size)] for size in sizes]
    assert align_words(data)["links"][:] != linked["links"][:]

    large = parallel(150)
    del fits[:]
    for seed in (0, 0, 1):
        align_words(large, sample_size=40, seed=seed, drop_identical=len(fits) == 1)
    align_words(large, extra_data=extra, sample_size=10**6)
    assert [len(words) for words in fits] == [40, 40, 40, 350]
    assert fits[0] == fits[1] != fits[2]


def test_filters_and_unlinked_pairs():
    data = concatenate_datasets([parallel(60).remove_columns("number"), bitext(*[("zzz", "! ?"), ("5 x", "5 x")] * 2)])
    every = align_words(data, keep_unlinked=True)
    assert len(every) == len(data) and every["links"][-1] == [[0, 0], [1, 1]]
    others = align_words(data, keep_unlinked=True, drop_identical=True)
    assert others["links"][-1] == []
    kept = align_words(data, drop_identical=True)
    assert kept["source"] == [row["source"] for row in others if row["links"]]


def test_languages_as_arguments_equal_languages_as_columns():
    text = parallel()
    bare = text.remove_columns(["source_lang", "target_lang"])
    assert align_words(bare, source_lang="de", target_lang="en")[:] == align_words(text)[:]
    with pytest.raises(InputError, match="or give languages to align_words"):
        align_words(bare)
    assert align_words(text, source_lang="deu")[:] == align_words(text)[:]


def test_dictionaries_and_aligners_lower_words_by_language(fits, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("light\tişıq\nsix\taltı\nisland\tinsel\nit\tit\n", "utf-8")
    pairs = [("İŞIQ altI", "SIX Light"), ("INSEL IT", "IT Island"), ("işıq ALTI", "light six")]
    text = bitext(*pairs, langs=["az-Latn", "de", "az-Latn"])
    linked = align_words(text, f"dictionary:{path}")
    assert linked["links"][:] == [[[0, 1], [1, 0]], [[0, 1], [1, 0]], [[0, 0], [1, 1]]]
    assert linked["source_words"][0] == ["İŞIQ", "altI"]
    align_words(text.select([0, 2] * 4))
    assert fits[0][0] == (["işıq", "altı"], ["six", "light"])
    align_shards([write_parquet(text, tmp_path / "in.parquet")], tmp_path / "out", f"dictionary:{path}")
    assert Dataset.from_parquet(f"{tmp_path}/out/*.parquet")["links"][:] == linked["links"][:]


def test_given_words_are_linked_as_they_are(tmp_path, capsys):
    pairs = [("ဖိုင်ဖွင့်", "file open", ["ဖိုင်", "ဖွင့်"]), ("ဖိုင်သိမ်း", "file save", ["ဖိုင်", "သိမ်း"])] * 8
    text = bitext(*(pair[:2] for pair in pairs), langs=["my"])
    with pytest.raises(InputError, match="Burmese"):
        align_words(text)
    given = text.add_column("source_words", [pair[2] for pair in pairs])
    linked = align_words(given)
    assert linked["source_words"][1] == pairs[1][2] and linked["target_words"][0] == ["file", "open"]
    assert linked["links"][:2] == [[[0, 0], [1, 1]]] * 2
    align_shards([write_parquet(given, tmp_path / "in.parquet")], tmp_path / "out")
    assert Dataset.from_parquet(f"{tmp_path}/out/*.parquet")["links"][:] == linked["links"][:]
    assert main(["align-words", f"my={tmp_path}/in.parquet"]) == 0
    assert capsys.readouterr().out == "0-0 1-1\n" * 16
    with pytest.raises(InputError, match=r"source_words of .* is not a list of words"):
        align_words(text.add_column("source_words", ["ဖိုင် ဖွင့်"] * 16))


def write_parquet(dataset, path):
    dataset.to_parquet(path)
    return path


def test_datasets_of_translations():
    pairs = [{"hy": "Բացել ֆայլը", "en": "Open file"}, {"hy": "Պահել ֆայլը", "en": None}] * 2
    rows = {"translation": pairs, "id": [1, 2, 3, 4]}
    of_hub = Features({"translation": Translation(["hy", "en"]), "id": Value("int64")})
    for text in (Dataset.from_dict(rows), Dataset.from_dict(rows, features=of_hub)):
        linked = align_words(text, keep_unlinked=True)
        assert [tuple(row.values())[:4] for row in linked][:2] == [
            ("Բացել ֆայլը", "Open file", "hy", "en"),
            ("Պահել ֆայլը", "", "hy", "en"),
        ]
    turned = align_words(text, source_lang="en", target_lang="hy", keep_unlinked=True)
    assert (turned[0]["source"], turned[0]["target_lang"]) == ("Open file", "hy")
    three = Dataset.from_dict({"translation": [{"fr": "a", "pt": "b", "it": "c"}]})
    with pytest.raises(InputError, match=r"columns are: 'fr', 'pt', 'it'.*source_column"):
        align_words(three, target_lang="it")
    assert align_words(three, source_lang="pt", target_lang="it")["source"][:] == ["b"]
    flores = Dataset.from_dict({"translation": [{"eng_Latn": "yes", "kor_Hang": "\ufeff네"}]})
    variable = Features({"translation": TranslationVariableLanguages(["ko", "en"])})
    one = {"language": ["en", "ko"], "translation": ["yes", "네"]}
    several = Dataset.from_dict({"translation": [one]}, features=variable)
    for text in (flores, several):
        assert list(align_words(text, source_lang="ko")[0].values())[:4] == ["네", "yes", "ko", "en"]


def test_statistics_count_by_language_pair(caplog):
    rows = [("ein haus", "a house"), ("hund", "dog")]
    linked = bitext(*rows).add_column("links", [[[0, 0], [1, 1]], [[0, 0]]])
    assert link_statistics(linked) == {"de-en": LinkStatistics(pairs=2, links=3, dropped=None)}
    before = concatenate_datasets([bitext(*rows), bitext(*rows[:1]), bitext(*rows, langs=["bn"])])
    counts = link_statistics(linked, before)
    assert counts == {"bn-en": LinkStatistics(0, 0, 2), "de-en": LinkStatistics(2, 3, 1)}
    assert counts["de-en"].links_per_pair == 1.5
    words = " ".join(VOCABULARY * 20)
    with caplog.at_level(logging.INFO, logger="hf_xalign.links"):
        align_words(concatenate_datasets([parallel(40).remove_columns("number"), bitext((words, words))]), "hmm")
    assert "without links dropped" in caplog.text
    assert "1 de-en pairs have no links, because they are too long" in caplog.text


def test_second_call_opens_the_file_and_any_change_links_again(fits):
    data = parallel(40)
    first = align_words(data)
    assert align_words(parallel(40)).cache_files == first.cache_files and len(fits) == 1
    changes = {"aligner": "ibm1", "symmetrization": "union", "one_to_one": False, "drop_identical": True}
    changes |= {"keep_unlinked": True, "lowercase": False, "sample_size": 30, "seed": 1}
    changes |= {"extra_data": parallel(5, seed=9), "dataset": parallel(40, seed=1)}
    files = {first.cache_files[0]["filename"]}
    for number, (name, value) in enumerate(changes.items(), start=2):
        files.add(align_words(**{"dataset": data, name: value}).cache_files[0]["filename"])
        assert len(fits) == number, name
    assert len(files) == len(changes) + 1


def check_that_fits_are_the_same():
    """Fit twice on words without any relation: next to every choice is a near tie that the order of sums decides."""
    runtimes = ctypes.CDLL(None), ctypes.CDLL(thot.__file__)
    before = [runtime.omp_get_max_threads() for runtime in runtimes]
    rng = np.random.default_rng(0)
    sides = [[list(map(str, rng.integers(300, size=rng.integers(3, 20)))) for _ in range(2000)] for _ in range(2)]
    scores = []
    try:
        for runtime in runtimes:
            runtime.omp_set_num_threads(4)
        for _ in range(2):
            [forward] = fit("fast_align", zip(*sides), [FORWARD])
            scores.append([score for score, _ in forward.get_best_alignments(*sides)])
            assert [runtime.omp_get_max_threads() for runtime in runtimes] == [4, 4]
    finally:
        for runtime, count in zip(runtimes, before):
            runtime.omp_set_num_threads(count)
    assert scores[0] == scores[1]


def test_the_same_fit_gives_the_same_scores():
    check_that_fits_are_the_same()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["torch, thot", "thot, torch"])
def test_fits_are_the_same_whichever_library_was_loaded_first(first):
    # Thot uses torch's OpenMP runtime when torch was loaded first, and its own otherwise.
    code = f"import {first}; from test_links import check_that_fits_are_the_same as check; check()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2]))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_pharaoh_file_is_read_row_by_row(tmp_path):
    data = bitext(("das haus.", "the house ."), ("ja", "yes"), ("a b c", "x y"))
    # fast_align writes scores after the links, or the text before them too.
    (tmp_path / "links").write_text("0-0 1-1 ||| -2.5\n\na b c ||| x y ||| 0-1 2-0 1-0 ||| -1\n")
    linked = align_words(data, f"pharaoh:{tmp_path}/links", one_to_one=False)
    assert linked["links"][:] == [[[0, 0], [1, 1]], [[0, 1], [2, 0], [1, 0]]]
    assert linked["source_words"][0] == ["das", "haus."]  # as the aligner saw it: blanks part words
    assert align_words(data, f"pharaoh:{tmp_path}/links")["links"][:] == [[[0, 0], [1, 1]], [[0, 1]]]
    (tmp_path / "links").write_text("1-1\n\n0-0\n")  # a changed file is read again
    assert align_words(data, f"pharaoh:{tmp_path}/links")["links"][:] == [[[1, 1]], [[0, 0]]]

    german, bengali = bitext(("a b", "x y"), ("c", "z")), bitext(("d e", "v w"), langs=["bn"])
    mixed = concatenate_datasets([german, bengali]).select([0, 2, 1])
    (tmp_path / "de.links").write_text("0-1\n0-0\n")
    (tmp_path / "bn.links").write_text("1-1\n")
    (tmp_path / "all").write_text("0-1\n1-1\n0-0\n")
    for name in ("{lang}.links", "all"):
        for size in (1, 2, 3):  # of the parts that the files are read over
            with patch.object(word_alignment, "_PART", size), patch.object(job, "VERSION", size):
                assert align_words(mixed, f"pharaoh:{tmp_path}/{name}")["links"][:] == [[[0, 1]], [[1, 1]], [[0, 0]]]


def test_dictionary_links(tmp_path):
    (tmp_path / "en-de.txt").write_text("House\thaus\nhome\thaus\nthe\tdas\nred\trot\n")
    data = bitext(("Das Haus", "The house"), ("das rote Haus", "the home house"), ("weg", "way"))
    linked = align_words(data, f"dictionary:{tmp_path}/en-{{lang}}.txt")
    assert linked["links"][:] == [[[0, 0], [1, 1]], [[0, 0]]]
    cased = align_words(data, f"dictionary:{tmp_path}/en-de.txt", lowercase=False, keep_unlinked=True)
    assert cased["links"][:] == [[], [[0, 0]], []]


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_dictionary_has_either_word_first(tmp_path, caplog, lowercase):
    rows = [
        ("panya anakula", "a mouse eats"),
        ("paka analala", "the cat sleeps"),
        ("panya na radio", "mouse and radio"),
    ]
    lines = [("mouse", "panya"), ("cat", "paka"), ("eats", "anakula"), ("radio", "radio")]
    paths = [tmp_path / "en-sw.txt", tmp_path / "sw-en.txt"]
    for path, step in zip(paths, (1, -1)):
        path.write_text("".join("\t".join(words[::step]) + "\n" for words in lines), "utf-8")
    text = bitext(*rows, langs=["sw"] * 3)
    muse, turned = (align_words(text, f"dictionary:{path}", lowercase=lowercase)["links"][:] for path in paths)
    assert muse == turned == [[[0, 1], [1, 2]], [[0, 1]], [[0, 0], [2, 2]]]
    said = [record.getMessage() for record in caplog.records if "words of sw first" in record.getMessage()]
    assert said == [f"{paths[1]} is read with the words of sw first: 5 links in 3 pairs, and 1 the other way"]
    write_parquet(text, tmp_path / "in.parquet")
    align_shards([tmp_path / "in.parquet"], tmp_path / "out", f"dictionary:{paths[1]}", lowercase=lowercase)
    [shard] = (tmp_path / "out").glob("*.parquet")
    assert Dataset.from_parquet(str(shard))["links"][:] == muse


def test_entries_that_no_word_can_match_are_counted(tmp_path, caplog):
    (tmp_path / "en-de.txt").write_text("cat\tKatze, Kater\nold dog\thund\nhouse\thaus\nhot dog\twurst\n", "utf-8")
    align_words(bitext(("das Haus", "the house")), f"dictionary:{tmp_path}/en-de.txt")
    [said] = [record.getMessage() for record in caplog.records if "entries can match" in record.msg]
    assert "1 of 4 entries can match words" in said and "cat / katze, kater; old dog / hund; hot dog" in said.lower()


def written(special, **names):
    """Return a corpus of given words in which those of `names` are written in other ways."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(80):
        words = rng.choice([*VOCABULARY[:8], *special], size=4, replace=False).tolist()
        pair = {"source": "x", "target": "y", "source_lang": "vi", "target_lang": "en"}
        words = {"source_words": [names.get(word, word) for word in words], "target_words": [w[::-1] for w in words]}
        rows.append(pair | words)
    return Dataset.from_list(rows)


@pytest.mark.parametrize("aligner", ["fast_align", "hmm", "eflomal"])
def test_words_with_a_blank_empty_words_and_null_are_words_like_others(aligner, tmp_path):
    special = ["xin_chào", "leer", "null", "unknown"]
    odd = written(special, xin_chào="xin chào", leer="", null="NULL", unknown="UNKNOWN_WORD")
    found = [align_words(data, aligner, lowercase=False, keep_unlinked=True) for data in (written(special), odd)]
    assert found[0]["links"][:] == found[1]["links"][:] and sum(map(len, found[0]["links"])) > 200
    assert found[1]["source_words"][:] == odd["source_words"][:]
    align_shards([write_parquet(odd, tmp_path / "in.parquet")], tmp_path / "out", aligner, lowercase=False, shards=2)
    shards = [Dataset.from_parquet(str(path))["links"][:] for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert list(chain(*shards)) == found[0]["links"][:]


def test_text_of_a_dataset_is_read_as_that_of_a_file(tmp_path):
    (tmp_path / "en-de.txt").write_text("early\tfrüh\n")
    composed, decomposed = (bitext((text, "early")) for text in ("früh", "\ufefffru\u0308h"))
    assert align_words(decomposed, f"dictionary:{tmp_path}/en-de.txt")["source_words"][:] == [["früh"]]
    ids = [
        encode_sentence_pairs(data, make_tokenizer(), min_tokens=1)["source_ids"][:] for data in (composed, decomposed)
    ]
    assert ids[0] == ids[1]
    with pytest.raises(InputError, match="both sides of some rows are in en"):
        align_words(bitext(("a", "b"), ("c", "d"), langs=("de", "eng_Latn")))


def test_a_dictionary_links_only_what_leaves_no_doubt():
    entries = "house-haus home-haus the-das the-der is-ist open-offen"
    linker = DictionaryLinker([tuple(entry.split("-")) for entry in entries.split()])
    for source, target, links in (
        ("das haus ist offen", "open is the house", [(0, 2), (1, 3), (2, 1), (3, 0)]),
        ("haus", "house home", []),  # two translations stand there
        ("das der", "the", []),  # the same from the other side
        ("haus haus", "house", []),  # the source word occurs twice
        ("haus", "house house", []),  # the target word does
        ("das das haus", "the house", [(2, 1)]),
        ("unbekannt", "unknown", []),
    ):
        assert linker([source.split()], [target.split()]) == [links], source


# ---- Symmetrization and filters ----


METHODS = get_args(Symmetrization)
NEIGHBOURS = [(di, dj) for di in (-1, 0, 1) for dj in (-1, 0, 1) if (di, dj) != (0, 0)]


def reference(f, b, method):
    """Return the links of a method by its definition, cell by cell over sets."""

    def covers(link, everything):
        new = link[0] not in {i for i, _ in links}, link[1] not in {j for _, j in links}
        return all(new) if everything else any(new)

    links = set(f | b if method == "union" else f & b)
    grown = method.startswith("grow")
    while grown:
        grown = False
        for i, j in sorted(f | b):
            beside = any((i + di, j + dj) in links for di, dj in NEIGHBOURS)
            if (i, j) not in links and beside and covers((i, j), everything=False):
                links.add((i, j))
                grown = True
    for direction in (f, b) if method == "grow-diag-final-and" else ():
        for link in sorted(direction):
            if covers(link, everything=True):
                links.add(link)
    return links


def cells(links):
    return {tuple(cell) for cell in np.argwhere(links).tolist()}


@st.composite
def directions(draw):
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    bits = st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns)
    return [np.array(draw(bits)).reshape(rows, columns) for _ in range(2)]


@pytest.mark.parametrize("method", METHODS)
@given(pair=directions())
def test_links_of_every_method_equal_sets(method, pair):
    before = [links.copy() for links in pair]
    found = symmetrize(*pair, method)
    assert (found.dtype, found.shape) == (bool, pair[0].shape)
    assert cells(found) == reference(*map(cells, pair), method)
    assert all((links == old).all() for links, old in zip(pair, before))


def test_statistical_aligners_mean_the_same_by_a_name():
    pairs = [("a b c", "x y z"), ("a b", "y x"), ("b c d", "y w z"), ("d a", "w x"), ("c", "z q")] * 3
    words = [(source.split(), target.split()) for source, target in pairs]
    sources, targets = [["d", "c", "b", "a"], ["a"]], [["x", "y", "z", "w"], ["q", "x"]]
    for method in METHODS:
        direct, inverse = fit("fast_align", words)
        linker = StatisticalLinker(direct, inverse, method)
        for source, target, found in zip(sources, targets, linker(sources, targets)):
            forward = direct.get_best_alignment(source, target)[1].to_numpy()
            backward = inverse.get_best_alignment(target, source)[1].to_numpy().T
            assert {tuple(x) for x in found} == reference(cells(forward), cells(backward), method), method


def test_filters_and_their_order():
    source, target = ["Haus", "1", "Chrome", ".", "rot", "blau"], ["house", "1", "Chrome", ".", "red", "color"]
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (4, 5), (5, 5)]
    assert LinkFilters()(links, source, target) == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert LinkFilters(drop_identical=True)(links, source, target) == [[0, 0]]
    assert LinkFilters(require_letter=True)(links, source, target) == [[0, 0], [2, 2]]
    assert LinkFilters(False)(links, source, target) == [list(link) for link in links]
    assert LinkFilters()([(0, 0), (1, 0), (2, 1), (3, 1), (3, 2)], "abcd", "xyz") == []
    # The identical link goes, but its word had two links: the other one goes as well.
    assert LinkFilters(True, True)([(0, 0), (0, 1)], ["x"], ["x", "y"]) == []
    assert LinkFilters(False, True)([(0, 0), (0, 1)], ["x"], ["x", "y"]) == [[0, 1]]
    # A letter of any script counts, and both words need one.
    words = ["মা", "১২", "a", "1"], ["mother", "12", "1", "a"]
    assert LinkFilters(require_letter=True)([(k, k) for k in range(4)], *words) == [[0, 0]]


# ---- An encoder's links against loops ----


def reference_units(encoder, tokenizer, words, subwords):
    """Return (word, unit vector) of each subword or word of a sentence, in layer 1."""
    encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        states = encoder.eval()(**encoded, output_hidden_states=True).hidden_states[1][0]
    tokens = [(word, states[k]) for k, word in enumerate(encoded.word_ids()) if word is not None]
    if not subwords:
        tokens = [(k, torch.stack([v for word, v in tokens if word == k]).mean(0)) for k in range(len(words))]
    return [(word, vector / vector.norm()) for word, vector in tokens]


def reference_links(source, target, method, threshold=0.001):
    """Return the links of both directions, unit by unit, and the smallest distance of any choice from a tie."""
    forward, backward, margin = set(), set(), 1.0
    for found, one, other in ((forward, source, target), (backward, target, source)):
        for word, vector in one:
            line = torch.stack([vector @ candidate for _, candidate in other])
            if method == "softmax":
                shares = ((line - 1) / 0.005).softmax(0)
                margin = min([margin, *(shares - threshold).abs().tolist()])
                best = (shares > threshold).nonzero()[:, 0].tolist()
            else:
                best = [int(line.argmax())]
                margin = min(margin, *(line.sort().values[-2:].diff().tolist() or [1.0]))
            found |= {(word, other[k][0]) if one is source else (other[k][0], word) for k in best}
    return forward, backward, margin


@pytest.mark.parametrize("method", ["subwords", "argmax", "softmax"])
def test_encoder_links_equal_a_loop(encoder, tokenizer, aligned, method):
    encoder.double()
    # Five distinct pairs: the smaller ones share a batch with larger ones.
    texts = aligned["source_words"][:5], aligned["target_words"][:5]
    links = encoder_links(encoder, tokenizer, *texts, layer=1, method=method, batch_size=3)
    expected = []
    for source, target in zip(*texts, strict=True):
        sides = [reference_units(encoder, tokenizer, words, method == "subwords") for words in (source, target)]
        forward, backward, margin = reference_links(*sides, method)
        # Float32 vectors of 16 numbers, for a cosine and both norms; the softmax's scale, 0.001 / 0.005, is below 1.
        assert margin > tolerance(3 * 16, dtype=torch.float32), "a choice so near a tie depends on rounding"
        expected.append((forward, backward))
    assert links == [sorted(map(list, forward & backward)) for forward, backward in expected] and all(links)
    assert links == encoder_links(encoder, tokenizer, *texts, method=method)  # layer 1 of 2 is the default
    union, grown = (
        encoder_links(encoder, tokenizer, *texts, method=method, symmetrization=name)
        for name in ("union", "grow-diag-final-and")
    )
    assert union == [sorted(map(list, forward | backward)) for forward, backward in expected]
    for few, some, many in zip(links, grown, union):
        assert {*map(tuple, few)} <= {*map(tuple, some)} <= {*map(tuple, many)}
    assert sum(map(len, union)) > sum(map(len, grown)) >= sum(map(len, links))


@pytest.mark.parametrize("method", ["subwords", "argmax"])
def test_the_chosen_layer_has_the_largest_agreement(tokenizer, aligned, method):
    texts, encoder = (aligned["source_words"][:], aligned["target_words"][:]), make_encoder(seed=2, layers=3)
    agreement = []
    for layer in (1, 2, 3):
        both, either = (
            encoder_links(encoder, tokenizer, *texts, layer=layer, method=method, symmetrization=name)
            for name in ("intersection", "union")
        )
        # |F| + |B| = |F and B| + |F or B|
        both, either = (sum(map(len, links)) for links in (both, either))
        agreement.append(2 * both / (both + either))
    assert len(set(agreement)) == 3
    assert choose_layer(encoder, tokenizer, *texts, method=method, batch_size=2) == 1 + int(np.argmax(agreement))


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
    files = {file, align()}
    # A module on top leaves the encoder's weights as they are, and so does switching it off.
    mapped = get_peft_model(encoder, XAlignConfig(top="linear"))
    files.add(align())
    find_top(mapped).enable_adapters(False)
    assert len(files) == 3 and align() in files


def test_predict_links_for_one_text_and_for_several(encoder, tokenizer):
    one = predict_links(encoder, "the cat, the dog", "the cat, the dog", source_lang="de", tokenizer=tokenizer)
    assert one.source_words == ["the", "cat", ",", "the", "dog"]
    assert one.pairs() == [(word, word) for word in one.target_words]
    several = predict_links(encoder, ["house", "a dog"], ["house", "a dog"], tokenizer=tokenizer)
    assert [pair.links for pair in several] == [[[0, 0]], [[0, 0], [1, 1]]]
