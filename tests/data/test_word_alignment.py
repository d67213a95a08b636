from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import thot
from datasets import Dataset, concatenate_datasets
from thot.alignment import EflomalAlignmentModel, FastAlignModel

from hf_xalign.cache import cache_dir
from hf_xalign.data import word_alignment
from hf_xalign.data.statistical_alignment import STATISTICAL_ALIGNERS, StatisticalLinker
from hf_xalign.data.word_alignment import LinkStatistics, align_words, link_statistics
from hf_xalign.errors import InputError

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
    """A toy language that translates word by word, in the same order or backwards."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(VOCABULARY, size=rng.integers(3, 7), replace=False).tolist() for _ in range(n)]
    order = -1 if backwards else 1
    return Dataset.from_dict(
        {
            "source": [" ".join([word[::-1] + source_lang for word in row][::order]) for row in rows],
            "target": [" ".join(row) for row in rows],
            "source_lang": [source_lang] * n,
            "target_lang": ["en"] * n,
            "number": list(range(n)),
        }
    )


def pairs(rows, source_lang="de"):
    """A dataset of hand-made (source, target) texts."""
    return Dataset.from_dict(
        {
            "source": [source for source, _ in rows],
            "target": [target for _, target in rows],
            "source_lang": [source_lang] * len(rows),
            "target_lang": ["en"] * len(rows),
        }
    )


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("aligner", STATISTICAL_ALIGNERS)
def test_statistical_aligners_find_a_word_by_word_translation(aligner):
    data = parallel()
    linked = align_words(data, aligner)
    assert linked.column_names == [*data.column_names, "source_words", "target_words", "links"]
    good = total = 0
    for row in linked:
        assert row["source"].split() == row["source_words"]
        good += sum(i == j for i, j in row["links"])
        total += len(row["links"])
    assert total > 300
    assert good / total > 0.9
    assert linked["number"] == sorted(linked["number"])


def test_fast_align_trains_five_iterations_and_eflomal_its_schedule(monkeypatch):
    rounds = {FastAlignModel: 0, EflomalAlignmentModel: 0}
    for model_class in rounds:
        train = model_class.train

        def counted(model, train=train):
            rounds[type(model)] += 1
            train(model)

        monkeypatch.setattr(model_class, "train", counted, raising=False)
    words = [(row["source"].split(), row["target"].split()) for row in parallel(30)]
    StatisticalLinker("fast_align", words)
    linker = StatisticalLinker("eflomal", words)
    assert rounds[FastAlignModel] == 2 * 5
    assert rounds[EflomalAlignmentModel] == sum(model.scheduled_iterations for model in linker.directions) > 20


def test_each_language_pair_has_its_own_model_and_rows_keep_their_order():
    german, bengali = parallel(80, "de"), parallel(80, "bn", seed=1)
    mixed = concatenate_datasets([german, bengali]).shuffle(seed=3)
    linked = align_words(mixed)
    alone = {lang: align_words(data) for lang, data in (("de", german), ("bn", bengali))}
    kept = [row["number"] for row in mixed if row["number"] in set(alone[row["source_lang"]]["number"])]
    assert linked["number"] == kept
    assert len(set(linked["source_lang"])) == 2
    # Fitted on the same pairs in another order, the model's sums differ in the last digits at most.
    links = {(r["source_lang"], r["number"]): r["links"] for r in linked}
    for lang, data in alone.items():
        same = [links[lang, row["number"]] == row["links"] for row in data]
        assert np.mean(same) > 0.95
    counts = link_statistics(linked, mixed)
    assert list(counts) == ["bn-en", "de-en"]
    assert counts["de-en"].pairs + counts["de-en"].dropped == 80


def test_case_is_ignored_and_kept():
    data = parallel(60)
    shouted = data.map(lambda row: {"source": row["source"].upper() if row["number"] == 1 else row["source"]})
    linked, plain = align_words(shouted, "ibm1"), align_words(data, "ibm1")
    assert linked["links"][:] == plain["links"][:]
    assert linked["source_words"][1] == [word.upper() for word in plain["source_words"][1]]
    cased = align_words(shouted, "ibm1", lowercase=False, keep_unlinked=True)
    assert len(cased["links"][1]) < len(linked["links"][1])


def test_extra_data_and_sample_train_the_aligner_only():
    data, extra = parallel(3, seed=5, backwards=True), parallel(200, seed=6, backwards=True)
    linked = align_words(data, extra_data=extra)
    assert linked["number"][:] == [0, 1, 2]
    for row in linked:
        last = len(row["source_words"]) - 1
        assert row["links"] == [[i, last - i] for i in range(last + 1)]
    assert align_words(data)["links"][:] != linked["links"][:]

    large = parallel(150)
    seen = []
    original = StatisticalLinker.__init__

    def spy(self, aligner, words, **options):
        words = list(words)
        seen.append(words)
        original(self, aligner, words, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StatisticalLinker, "__init__", spy)
        for seed in (0, 0, 1):
            align_words(large, sample_size=40, seed=seed, require_letter=len(seen) == 1)
        align_words(large, extra_data=extra, sample_size=10**6)
    assert [len(words) for words in seen] == [40, 40, 40, 350]
    assert seen[0] == seen[1] != seen[2]


def test_filters_and_unlinked_pairs():
    data = concatenate_datasets([parallel(60).remove_columns("number"), pairs([("zzz", "! ?"), ("5 x", "5 x")] * 2)])
    every = align_words(data, keep_unlinked=True)
    assert len(every) == len(data)
    letters = align_words(data, keep_unlinked=True, require_letter=True, drop_identical=True)
    assert letters["links"][-2:] == [[], []]
    assert every["links"][-1] == [[0, 0], [1, 1]]
    kept = align_words(data, require_letter=True, drop_identical=True)
    assert kept["source"] == [row["source"] for row in letters if row["links"]]
    assert link_statistics(kept, data)["de-en"].dropped == len(data) - len(kept) >= 4


def test_statistics_count_by_language_pair(caplog):
    rows = [("ein haus", "a house"), ("hund", "dog")]
    linked = pairs(rows).add_column("links", [[[0, 0], [1, 1]], [[0, 0]]])
    assert link_statistics(linked) == {"de-en": LinkStatistics(pairs=2, links=3, dropped=None)}
    before = concatenate_datasets([pairs(rows), pairs(rows[:1]), pairs(rows, "bn")])
    counts = link_statistics(linked, before)
    assert counts == {"bn-en": LinkStatistics(0, 0, 2), "de-en": LinkStatistics(2, 3, 1)}
    assert counts["de-en"].links_per_pair == 1.5
    with caplog.at_level(logging.INFO, logger=word_alignment.__name__):
        align_words(parallel(40))
    assert "without links dropped" in caplog.text


# The cache.


def test_second_call_opens_the_file_and_any_change_links_anew(monkeypatch):
    fits = []
    original = StatisticalLinker.__init__

    def spy(self, *args, **options):
        fits.append(1)
        original(self, *args, **options)

    monkeypatch.setattr(StatisticalLinker, "__init__", spy)
    data = parallel(40)
    first = align_words(data)
    again = align_words(parallel(40))
    assert len(fits) == 1
    assert again.to_dict() == first.to_dict()
    assert again.cache_files == first.cache_files
    changes = [
        {"aligner": "ibm1"},
        {"symmetrization": "union"},
        {"one_to_one": False},
        {"drop_identical": True},
        {"require_letter": True},
        {"keep_unlinked": True},
        {"lowercase": False},
        {"extra_data": parallel(5, seed=9)},
        {"sample_size": 30},
        {"seed": 1},
        {"deterministic": False},
    ]
    files = {first.cache_files[0]["filename"]}
    for number, change in enumerate(changes, start=2):
        files.add(align_words(data, **change).cache_files[0]["filename"])
        assert len(fits) == number, change
    files.add(align_words(parallel(40, seed=1)).cache_files[0]["filename"])
    assert len(files) == len(changes) + 2


def test_failed_run_leaves_nothing_behind(monkeypatch):
    def fail(self, sources, targets):
        raise RuntimeError("stop")

    with monkeypatch.context() as patch:
        patch.setattr(StatisticalLinker, "__call__", fail)
        with pytest.raises(RuntimeError, match="stop"):
            align_words(parallel(40))
    assert not [path for path in cache_dir("links").rglob("*") if path.suffix != ".lock"]
    assert len(align_words(parallel(40)))


def check_that_fits_are_the_same():
    """Fit twice on words without any relation: beside every choice is a near tie that the order of sums decides."""
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
@pytest.mark.parametrize("first", ["import torch, thot", "import thot, torch"])
def test_fits_are_the_same_whichever_library_was_loaded_first(first):
    # Thot uses torch's OpenMP runtime when torch was loaded first, and its own otherwise.
    check = "from test_word_alignment import check_that_fits_are_the_same as check; check()"
    code = f"{first}, sys; sys.path.insert(0, sys.argv[1]); {check}"
    command = [sys.executable, "-c", code, os.path.dirname(__file__)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_links_are_the_same_in_another_process():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_word_alignment import parallel\n"
        "from hf_xalign.data.word_alignment import align_words\n"
        "import hashlib; print(hashlib.md5(repr(align_words(parallel(300))['links'][:]).encode()).hexdigest())"
    )
    folder = os.path.dirname(__file__)
    found = set()
    for run in range(2):
        environment = {**os.environ, "HF_XALIGN_CACHE": str(cache_dir(f"run{run}"))}
        command = [sys.executable, "-c", code, folder]
        found.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1


# Files.


def test_pharaoh_file_is_read_row_by_row(tmp_path):
    data = pairs([("das haus.", "the house ."), ("ja", "yes"), ("a b c", "x y")])
    (tmp_path / "links").write_text("0-0 1-1\n\n0-1 2-0 1-0\n")
    linked = align_words(data, f"pharaoh:{tmp_path}/links", one_to_one=False)
    assert linked["links"][:] == [[[0, 0], [1, 1]], [[0, 1], [2, 0], [1, 0]]]
    assert linked["source_words"][0] == ["das", "haus."]  # as the aligner saw it: blanks part words
    assert align_words(data, f"pharaoh:{tmp_path}/links")["links"][:] == [[[0, 0], [1, 1]], [[0, 1]]]


def test_pharaoh_files_by_language(tmp_path):
    german, bengali = pairs([("a b", "x y"), ("c", "z")]), pairs([("d e", "v w")], "bn")
    mixed = concatenate_datasets([german, bengali]).select([0, 2, 1])
    (tmp_path / "de.links").write_text("0-1\n0-0\n")
    (tmp_path / "bn.links").write_text("1-1\n")
    expected = [[[0, 1]], [[1, 1]], [[0, 0]]]
    assert align_words(mixed, f"pharaoh:{tmp_path}/{{lang}}.links")["links"][:] == expected
    files = {lang: tmp_path / f"{lang}.links" for lang in ("de", "bn")}
    assert align_words(mixed, "pharaoh", files=files)["links"][:] == expected
    (tmp_path / "all").write_text("0-1\n1-1\n0-0\n")
    assert align_words(mixed, f"pharaoh:{tmp_path}/all")["links"][:] == expected
    with pytest.raises(InputError, match="bn"):
        align_words(mixed, "pharaoh", files={"de": tmp_path / "de.links"})


def test_a_changed_file_is_read_again(tmp_path):
    data = pairs([("a b", "x y")])
    path = tmp_path / "links"
    path.write_text("0-0\n")
    assert align_words(data, f"pharaoh:{path}")["links"][:] == [[[0, 0]]]
    path.write_text("1-1\n")
    assert align_words(data, f"pharaoh:{path}")["links"][:] == [[[1, 1]]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-0\n0-0 1:1\n", r"row 2: '1:1'"),
        ("0-0\n0-0 -1-0\n", r"row 2: '-1-0'"),
        ("0-0\n0-0 x\n", r"row 2: 'x'"),
        ("0-0\n1-2\n", r"row 2: link 1-2 is out of range.*2 words.*2"),
        ("0-0\n", r"1 lines for 2 sentence pairs"),
        ("0-0\n0-0\n0-0\n", r"3 lines for 2 sentence pairs"),
        ("0-0\n\udcff\n", r"UTF-8"),
    ],
)
def test_bad_pharaoh_file_names_file_and_row(tmp_path, text, message):
    path = tmp_path / "given.links"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=f"given.links.*{message}"):
        align_words(pairs([("a b", "x y"), ("c d", "z w")]), f"pharaoh:{path}")


def test_dictionary_links(tmp_path):
    (tmp_path / "en-de.txt").write_text("House\thaus\nhome\thaus\nthe\tdas\nred\trot\n")
    data = pairs([("Das Haus", "The house"), ("das rote Haus", "the home house"), ("weg", "way")])
    linked = align_words(data, f"dictionary:{tmp_path}/en-{{lang}}.txt")
    assert linked["links"][:] == [[[0, 0], [1, 1]], [[0, 0]]]
    cased = align_words(data, "dictionary", files={"de": tmp_path / "en-de.txt"}, lowercase=False, keep_unlinked=True)
    assert cased["links"][:] == [[], [[0, 0]], []]


# Bad input.


def test_no_links_left_says_what_to_do():
    with pytest.raises(InputError, match="extra_data"):
        align_words(pairs([("1 2", "1 2")] * 3), require_letter=True)
    assert not list(cache_dir("links").glob("*.arrow"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aligner": "giza"}, "fast_align.*encoder"),
        ({"aligner": "pharaoh"}, "pharaoh:PATH"),
        ({"aligner": "pharaoh:none.txt"}, "none.txt"),
        ({"aligner": "dictionary:none.txt"}, "none.txt"),
        ({"aligner": "fast_align:x"}, "reads no files"),
        ({"aligner": "encoder"}, "model= and tokenizer="),
        ({"symmetrization": "och"}, "grow-diag"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        align_words(parallel(5), **options)


def test_bad_data_is_refused():
    with pytest.raises(InputError, match="the dataset has no column source_lang"):
        align_words(parallel(5).remove_columns("source_lang"))
    with pytest.raises(InputError, match="extra_data has no column target"):
        align_words(parallel(5), extra_data=parallel(5).remove_columns("target"))
    with pytest.raises(InputError, match="no rows"):
        align_words(parallel(5).select([]))


def test_pairs_too_long_for_the_aligner_are_counted(caplog):
    words = " ".join(VOCABULARY * 20)
    data = concatenate_datasets([parallel(40).remove_columns("number"), pairs([(words, words)])])
    with caplog.at_level(logging.WARNING, logger=word_alignment.__name__):
        align_words(data, "hmm")
    assert "1 de-en pairs are too long" in caplog.text
