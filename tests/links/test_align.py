"""Links of every aligner, their filters and counts, and the cache that they lie in."""

import ctypes
import logging
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import thot
from datasets import Dataset, concatenate_datasets
from thot.alignment import EflomalAlignmentModel, FastAlignModel

from hf_xalign.data.dictionary import DictionaryLinker, load_dictionary
from hf_xalign.links import align as word_alignment
from hf_xalign.links.align import LinkStatistics, align_words, link_statistics
from hf_xalign.links.statistical import STATISTICAL_ALIGNERS, StatisticalLinker

VOCABULARY = [
    "cat",
    "dog",
    "house",
    "tree",
    "sees",
    "likes",
    "big",
    "small",
    "red",
    "blue",
    "the",
    "a",
    "runs",
    "eats",
]


def parallel(n=120, source_lang="de", seed=0, backwards=False):
    """Return a corpus of a toy language that translates word by word, in the same order or backwards."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(VOCABULARY, size=rng.integers(3, 7), replace=False).tolist() for _ in range(n)]
    source = [" ".join([word[::-1] + source_lang for word in row][:: -1 if backwards else 1]) for row in rows]
    return pairs(zip(source, map(" ".join, rows)), source_lang).add_column("number", list(range(n)))


def pairs(rows, source_lang="de"):
    source, target = zip(*rows)
    langs = {"source_lang": [source_lang] * len(source), "target_lang": ["en"] * len(source)}
    return Dataset.from_dict({"source": list(source), "target": list(target), **langs})


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def fits(monkeypatch):
    """Record the words that each aligner is trained on."""
    seen = []
    original = StatisticalLinker.__init__

    def spy(self, aligner, words, **options):
        words = list(words)
        seen.append(words)
        original(self, aligner, words, **options)

    monkeypatch.setattr(StatisticalLinker, "__init__", spy)
    return seen


# ---- Aligners ----


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
        StatisticalLinker("fast_align", words)
    assert len(rounds) == 2 * 5
    with patch.object(EflomalAlignmentModel, "train", lambda model: rounds.append(model), create=True):
        linker = StatisticalLinker("eflomal", words)
    assert len(rounds) - 10 == sum(model.scheduled_iterations for model in linker.directions) > 20


def test_each_language_pair_has_its_own_model_and_rows_keep_their_order():
    alone = {lang: parallel(80, lang, seed=seed) for seed, lang in enumerate(("de", "bn"))}
    mixed = concatenate_datasets(list(alone.values())).shuffle(seed=3)
    linked = align_words(mixed)
    alone = {lang: align_words(data) for lang, data in alone.items()}
    kept = [row["number"] for row in mixed if row["number"] in set(alone[row["source_lang"]]["number"])]
    assert linked["number"] == kept
    # Fitted on the same pairs in another order, the model's sums differ in the last digits at most.
    links = {(row["source_lang"], row["number"]): row["links"] for row in linked}
    for lang, data in alone.items():
        assert np.mean([links[lang, row["number"]] == row["links"] for row in data]) > 0.95


def test_case_is_ignored_and_kept():
    data = parallel(60)
    shouted = data.map(lambda row: {"source": row["source"].upper() if row["number"] == 1 else row["source"]})
    linked, plain = align_words(shouted, "ibm1"), align_words(data, "ibm1")
    assert linked["links"][:] == plain["links"][:]
    assert linked["source_words"][1] == [word.upper() for word in plain["source_words"][1]]
    cased = align_words(shouted, "ibm1", lowercase=False, keep_unlinked=True)
    assert len(cased["links"][1]) < len(linked["links"][1])


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
        align_words(large, sample_size=40, seed=seed, require_letter=len(fits) == 1)
    align_words(large, extra_data=extra, sample_size=10**6)
    assert [len(words) for words in fits] == [40, 40, 40, 350]
    assert fits[0] == fits[1] != fits[2]


def test_filters_and_unlinked_pairs():
    data = concatenate_datasets([parallel(60).remove_columns("number"), pairs([("zzz", "! ?"), ("5 x", "5 x")] * 2)])
    every = align_words(data, keep_unlinked=True)
    assert len(every) == len(data) and every["links"][-1] == [[0, 0], [1, 1]]
    letters = align_words(data, keep_unlinked=True, require_letter=True, drop_identical=True)
    assert letters["links"][-2:] == [[], []]
    kept = align_words(data, require_letter=True, drop_identical=True)
    assert kept["source"] == [row["source"] for row in letters if row["links"]]


def test_statistics_count_by_language_pair(caplog):
    rows = [("ein haus", "a house"), ("hund", "dog")]
    linked = pairs(rows).add_column("links", [[[0, 0], [1, 1]], [[0, 0]]])
    assert link_statistics(linked) == {"de-en": LinkStatistics(pairs=2, links=3, dropped=None)}
    before = concatenate_datasets([pairs(rows), pairs(rows[:1]), pairs(rows, "bn")])
    counts = link_statistics(linked, before)
    assert counts == {"bn-en": LinkStatistics(0, 0, 2), "de-en": LinkStatistics(2, 3, 1)}
    assert counts["de-en"].links_per_pair == 1.5
    words = " ".join(VOCABULARY * 20)
    with caplog.at_level(logging.INFO, logger=word_alignment.__name__):
        align_words(concatenate_datasets([parallel(40).remove_columns("number"), pairs([(words, words)])]), "hmm")
    assert "without links dropped" in caplog.text
    assert "1 de-en pairs are too long" in caplog.text


# ---- The cache ----


def test_second_call_opens_the_file_and_any_change_links_again(fits):
    data = parallel(40)
    first = align_words(data)
    assert align_words(parallel(40)).cache_files == first.cache_files and len(fits) == 1
    changes = {"aligner": "ibm1", "symmetrization": "union", "one_to_one": False, "drop_identical": True}
    changes |= {"require_letter": True, "keep_unlinked": True, "lowercase": False, "sample_size": 30, "seed": 1}
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
            forward, _ = StatisticalLinker("fast_align", zip(*sides)).directions
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
    code = f"import {first}; from test_align import check_that_fits_are_the_same as check; check()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2]))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- Files ----


def test_pharaoh_file_is_read_row_by_row(tmp_path):
    data = pairs([("das haus.", "the house ."), ("ja", "yes"), ("a b c", "x y")])
    (tmp_path / "links").write_text("0-0 1-1\n\n0-1 2-0 1-0\n")
    linked = align_words(data, f"pharaoh:{tmp_path}/links", one_to_one=False)
    assert linked["links"][:] == [[[0, 0], [1, 1]], [[0, 1], [2, 0], [1, 0]]]
    assert linked["source_words"][0] == ["das", "haus."]  # as the aligner saw it: blanks part words
    assert align_words(data, f"pharaoh:{tmp_path}/links")["links"][:] == [[[0, 0], [1, 1]], [[0, 1]]]
    (tmp_path / "links").write_text("1-1\n\n0-0\n")  # a changed file is read again
    assert align_words(data, f"pharaoh:{tmp_path}/links")["links"][:] == [[[1, 1]], [[0, 0]]]

    german, bengali = pairs([("a b", "x y"), ("c", "z")]), pairs([("d e", "v w")], "bn")
    mixed = concatenate_datasets([german, bengali]).select([0, 2, 1])
    (tmp_path / "de.links").write_text("0-1\n0-0\n")
    (tmp_path / "bn.links").write_text("1-1\n")
    (tmp_path / "all").write_text("0-1\n1-1\n0-0\n")
    for name in ("{lang}.links", "all"):
        assert align_words(mixed, f"pharaoh:{tmp_path}/{name}")["links"][:] == [[[0, 1]], [[1, 1]], [[0, 0]]]


def test_dictionary_links(tmp_path):
    (tmp_path / "en-de.txt").write_text("House\thaus\nhome\thaus\nthe\tdas\nred\trot\n")
    data = pairs([("Das Haus", "The house"), ("das rote Haus", "the home house"), ("weg", "way")])
    linked = align_words(data, f"dictionary:{tmp_path}/en-{{lang}}.txt")
    assert linked["links"][:] == [[[0, 0], [1, 1]], [[0, 0]]]
    cased = align_words(data, f"dictionary:{tmp_path}/en-de.txt", lowercase=False, keep_unlinked=True)
    assert cased["links"][:] == [[], [[0, 0]], []]

    # Tabs, blanks and several translations; a byte order mark is no part of a word, and entries become NFC.
    path = tmp_path / "en-xx.txt"
    text = "the\tder\nthe\tdie\n\nhouse Haus\r\ncomputer\tmáy tính\noil\tO\u0308l\n"
    entries = [("the", "der"), ("the", "die"), ("house", "Haus"), ("computer", "máy tính"), ("oil", "Öl")]
    for encoding in ("utf-8", "utf-8-sig"):
        path.write_bytes(text.encode(encoding))
        assert load_dictionary(path) == entries


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
