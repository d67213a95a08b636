"""Bad inputs of example scores, tests, intervals and comparisons."""

import shutil
from functools import partial

import numpy as np
from support.refusals import assert_refused, calls
from support.results import edit_run, tagged, write_run, write_system, write_three

from hf_xalign.statistics.comparison import compare
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.statistics.significance import (
    paired_t_test,
    permutation_test,
)


def counted(*columns):
    return [ExampleScores.from_counts(*columns)]


def test_significance():
    one, three = counted([1, 0], [1, 1], [1, 1]), counted([1, 0, 1], [1, 1, 1], [1, 1, 1])
    wrong = [
        (([*one, *one], one), "there are 2 and 1"),
        ((three, one), "2 with counts and 3 with counts"),
        (([ExampleScores.from_values([1, 0])], one), "2 with counts and 2 with values"),
        ((counted([1, 1], [1, 1], [1, 2]), one), "example 1 has 1 items for one and 2 for the other"),
    ]
    table = calls(permutation_test, wrong)
    sentences = counted([1, 2], [2, 3], [2, 3])
    assert_refused(table | calls(paired_t_test, [((sentences, sentences), "permutation test")]))


def test_comparison_of_a_bad_folder(tmp_path):
    def spoil(change, folder):
        folders = write_three(folder)
        change(folders[1])
        return compare(folders, quiet=True)

    longer = {code: tagged(np.random.default_rng(0), n, 0.5) for code, n in (("de", 79), ("hi", 50))}
    more = {code: tagged(np.random.default_rng(0), n, 0.5) for code, n in (("de", 80), ("hi", 50), ("ru", 9))}
    rows = [
        (lambda f: edit_run(f, train_language="de"), "train_language is 'de', but 'en' for seed 0"),
        (lambda f: write_run(f, 2, longer), "de: .*80 with counts and 79 with counts. .*--links"),
        (lambda f: write_run(f, 2, more), "seed-0/examples/ru.json: .*No such file"),
    ]
    assert_refused({said: (partial(spoil, change), f"fao_1%.*{said}") for change, said in rows}, tmp_path)


def test_comparison_of_systems_that_do_not_compare(tmp_path):
    raw, fao, worse = write_three(tmp_path)

    def other(chances=None, **fields):
        return compare([raw, write_system(worse, chances or {"de": 0.8, "hi": 0.5}, **fields)], quiet=True)

    unknown = partial(compare, [raw, fao, worse], seeds=[0, 9], quiet=True)
    assert_refused({"seeds": (unknown, "raw: has no seed 9, only 0, 1, 2")})
    shutil.rmtree(fao / "seed-1")
    systems = [
        ({"chances": {"de": 0.8}}, r"worse: has languages de, but .*raw has de, hi\. .*--languages de"),
        ({"task": "ner"}, r"worse: task is 'ner', but 'pos' in .*raw"),
    ]
    seeds = r"fao_1%: has seeds 0, 2, but .*raw has 0, 1, 2\. .*--seeds 0 2"
    assert_refused(calls(other, systems) | calls(compare, [(([raw, fao],), seeds)], quiet=True))
