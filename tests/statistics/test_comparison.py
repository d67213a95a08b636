"""Comparison of result folders, from small folders written here, and the recipe that prints it."""

import json
import math
import shutil
from itertools import product

import numpy as np
import pytest
import torch
from support.numeric import assert_rounding
from support.results import write_system, write_three

from hf_xalign.evaluation.retrieval import sentence_examples
from hf_xalign.recipes import compare as recipe
from hf_xalign.statistics import significance
from hf_xalign.statistics.comparison import compare, load_system
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.tasks.results import save_examples

FEW = {"permutations": 9, "resamples": 9, "quiet": True}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_three(tmp_path_factory.mktemp("systems"))


def test_figures_are_those_of_the_tests(folders):
    found = compare(folders, permutations=500, resamples=300, quiet=True)
    assert found.test == "permutation test" and found.languages == ["de", "hi"]
    raw, fao, _ = found.systems
    assert raw.scores("de")[1] == ExampleScores.load(folders[0] / "seed-1" / "examples" / "de.json").score()

    rows = [d for d in found.differences if d.system == "fao_1%"]
    pairs = [(fao.examples[code], raw.examples[code]) for code in ("de", "hi")]
    p_values = [significance.permutation_test(*pair, permutations=500) for pair in pairs]
    assert [d.p for d in rows[:2]] == p_values
    assert [d.corrected for d in rows[:2]] == significance.holm(p_values).tolist()
    assert rows[0].corrected < 0.05 < rows[1].corrected
    for row, pair in zip(rows, pairs):
        assert_rounding(row.difference, np.mean([a.score() - b.score() for a, b in zip(*pair)]), operations=4 * 80)
        drawn = significance.resampled_differences(*pair, resamples=300)
        assert [row.low, row.high] == np.quantile(drawn, [(1 - 0.95) / 2, (1 + 0.95) / 2]).tolist()
    average = rows[2]
    assert (average.language, average.p, average.examples) == (None, None, 130)
    assert_rounding(average.difference, (rows[0].difference + rows[1].difference) / 2, operations=8, scale=1)
    drawn = np.mean([significance.resampled_differences(*pair, resamples=300) for pair in pairs], axis=0)
    assert_rounding([average.low, average.high], np.quantile(drawn, [0.025, 0.975]), operations=16, scale=1)


def test_means_are_compared_by_the_t_test(tmp_path):
    def answers(rng, length, chance):
        return ExampleScores.from_values((rng.random(length) < chance).astype(float))

    given = [write_system(tmp_path / name, {"de": 0.6}, kind=answers, metric="qa_f1") for name in "ab"]
    found = compare(given, quiet=True)
    (only,) = found.differences
    assert found.test == "paired t-test"
    assert only.p == significance.paired_t_test(found.systems[1].examples["de"], found.systems[0].examples["de"])


def test_words_are_compared_by_sentence(tmp_path):
    rng = np.random.default_rng(1)
    sentences = torch.from_numpy(np.repeat(np.arange(10), rng.integers(1, 9, 10)))
    luck = rng.random(10)[sentences]  # the words of a sentence succeed together
    hits = {name: torch.from_numpy(rng.random((len(luck), 2)) < (luck + more)[:, None])
            for name, more in (("before", -0.1), ("after", 0.1))}  # fmt: skip
    for name, own in hits.items():
        for seed in (0, 1):
            save_examples({"de": {"retrieval_mean": sentence_examples(own, sentences, 10)}}, tmp_path,
                          f"{name}/seed-{seed}")  # fmt: skip
    found = compare([tmp_path / "retrieval_mean" / name for name in hits], permutations=20_000, quiet=True)
    right = {name: [sum(int(h) for hit, at in zip(own, sentences) if at == row for h in hit) for row in range(10)]
             for name, own in hits.items()}  # fmt: skip
    apart = [b - a for a, b in zip(*right.values())]
    swaps = list(product((1, -1), repeat=10))
    exact = sum(abs(sum(s * d for s, d in zip(swap, apart))) >= abs(sum(apart)) for swap in swaps) / len(swaps)
    [only] = found.differences
    assert found.test == "permutation test" and 0.005 < exact < 0.3 and only.examples == 10
    assert abs(only.p - exact) < 5 * math.sqrt(exact * (1 - exact) / 20_000) + 1 / 20_000
    assert_rounding(only.difference, sum(apart) / (2 * len(luck)), operations=8)
    for system in found.systems:
        share = hits[system.name].double().mean().item()
        assert system.scores("de").tolist() == [share, share]


def test_test_sets_of_one_size_that_differ_are_told(tmp_path):
    for entry, count in (("eval eu=a.jsonl", 1), ("text eu=a.jsonl", 1), ("train eu=a.jsonl", 0)):
        for name, mark in (("x", "1"), ("y", "2")):
            scores = {"eu": {"sentence_mean": ExampleScores.from_values([0.5, 1.0, 0.0])}}
            save_examples(scores, tmp_path, f"{name}/seed-0")
            path = tmp_path / "sentence_mean" / name / "seed-0" / "scores.json"
            inputs = {"text eu=train.jsonl": "3", entry: mark}
            path.write_text(json.dumps(json.loads(path.read_text()) | {"inputs": inputs}))
        found = compare([tmp_path / "sentence_mean" / name for name in "xy"], **FEW)
        assert sum("The test text in eu is not the same" in note for note in found.notes()) == count


def test_languages_seeds_and_names_can_be_chosen(folders, tmp_path):
    fewer = shutil.copytree(folders[1], tmp_path / "fewer")
    shutil.rmtree(fewer / "seed-2")
    found = compare([folders[0], fewer], seeds=[1, 0], languages=["hi", "de"], names=["A", "B"], **FEW)
    assert found.languages == ["hi", "de"]
    assert [(s.name, s.seeds) for s in found.systems] == [("A", [0, 1]), ("B", [0, 1])]
    assert load_system(folders[0], languages=["hi"]).examples.keys() == {"hi"}
    twins = [write_system(tmp_path / part / "out", {"de": 0.5}) for part in "ab"]
    assert [s.name for s in compare(twins, **FEW).systems] == list(map(str, twins)), "one name, told apart"


def test_recipe_prints_and_writes_the_tables(folders, tmp_path, capsys):
    file = tmp_path / "out" / "t.md"
    argv = [*map(str, folders), "--permutations", "500", "--resamples", "200"]
    recipe.main([*argv, "--markdown", str(file)])
    text = capsys.readouterr().out
    scores = [100 * load_system(folder).scores("de") for folder in folders[:2]]
    raw, fao = (f"{one.mean():.1f} ± {one.std(ddof=1):.1f}" for one in scores)
    lines = text.splitlines()
    assert lines[0].split() == ["system", "de", "hi", "average"]
    assert f"{raw}  " in lines[2] and f"{fao} *" in lines[3] and lines[4].count("†") == 1
    assert "by the permutation test over examples, after Holm over the 2 languages" in " ".join(lines)

    assert rf"| fao\_1% | {fao} \* |" in file.read_text()
    recipe.main([*argv, "--concatenate_seeds", "true"])
    assert capsys.readouterr().out != text
    recipe.main([*map(str, folders), "--seeds", "1", "--permutations", "50", "--resamples", "50"])
    text = capsys.readouterr().out
    assert "±" not in text and "One seed only" in text


def test_names_cannot_break_a_table(folders):
    found = compare(folders[:2], names=["a|b `c`<i>", r"[x] \y{z}^~&"], languages=["de"], **FEW)
    markdown = recipe.as_markdown(found)
    assert r"| a\|b \`c\`&lt;i&gt; |" in markdown
    assert r"| \[x\] \\y{z}^\~&amp; |" in markdown
    assert "average" not in markdown
