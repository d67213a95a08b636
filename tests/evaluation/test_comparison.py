"""Comparison of result folders, from small folders written here, and the recipe that prints it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from hf_xalign.errors import InputError
from hf_xalign.evaluation.comparison import compare, load_system
from hf_xalign.evaluation.examples import ExampleScores
from hf_xalign.evaluation.significance import (
    difference_interval,
    holm,
    paired_t_test,
    permutation_test,
    resampled_differences,
)
from hf_xalign.recipes import compare as recipe

LENGTHS = {"de": 80, "hi": 50}


def write_run(folder, seed, examples, *, task="pos", metric="token_f1", train_language="en"):
    languages = {}
    for code, scores in examples.items():
        scores.save(folder / f"seed-{seed}" / "examples" / f"{code}.json")
        languages[code] = {"score": scores.score(), "examples": len(scores)}
    record = {
        "task": task,
        "metric": metric,
        "seed": seed,
        "train_language": train_language,
        "languages": languages,
        "settings": {},
    }
    (folder / f"seed-{seed}" / "scores.json").write_text(json.dumps(record))


def words(rng, length, chance):
    """A tagger's scores: sentences of different lengths, always the same."""
    gold = np.random.default_rng(length).integers(2, 12, length)
    return ExampleScores.from_counts(rng.binomial(gold, chance), gold, gold)


def system(folder, chances, seeds=(0, 1, 2), kind=words, **fields):
    rng = np.random.default_rng(sum(map(ord, folder.name)))
    for seed in seeds:
        write_run(folder, seed, {c: kind(rng, LENGTHS[c], chance) for c, chance in chances.items()}, **fields)
    return folder


@pytest.fixture
def folders(tmp_path):
    return [
        system(tmp_path / "raw", {"de": 0.8, "hi": 0.5}),
        system(tmp_path / "fao_1%", {"de": 0.9, "hi": 0.5}),
        system(tmp_path / "worse", {"de": 0.8, "hi": 0.3}),
    ]


def test_figures_are_those_of_the_tests(folders):
    found = compare(folders, permutations=500, resamples=300, quiet=True)
    assert found.test == "permutation test"
    assert found.languages == ["de", "hi"]
    raw, fao, _ = found.systems
    assert raw.seeds == [0, 1, 2]
    assert raw.scores("de")[1] == ExampleScores.load(folders[0] / "seed-1" / "examples" / "de.json").score()

    rows = [d for d in found.differences if d.system == "fao_1%"]
    pairs = [(fao.examples[code], raw.examples[code]) for code in ("de", "hi")]
    p_values = [permutation_test(*pair, permutations=500) for pair in pairs]
    assert [d.p for d in rows[:2]] == p_values
    assert [d.corrected for d in rows[:2]] == holm(p_values).tolist()
    assert rows[0].corrected < 0.05 < rows[1].corrected
    for row, pair in zip(rows, pairs):
        assert row.difference == pytest.approx(np.mean([a.score() - b.score() for a, b in zip(*pair)]))
        assert (row.low, row.high) == difference_interval(*pair, resamples=300)

    average = rows[2]
    assert (average.language, average.p, average.examples) == (None, None, 130)
    assert average.difference == pytest.approx((rows[0].difference + rows[1].difference) / 2)
    drawn = np.mean([resampled_differences(*pair, resamples=300) for pair in pairs], axis=0)
    np.testing.assert_allclose((average.low, average.high), np.quantile(drawn, [0.025, 0.975]))


def test_means_are_compared_by_the_t_test(tmp_path):
    def answers(rng, length, chance):
        return ExampleScores.from_values((rng.random(length) < chance).astype(float))

    found = compare([system(tmp_path / name, {"de": 0.6}, kind=answers, metric="qa_f1") for name in "ab"], quiet=True)
    first, second = found.systems
    (only,) = found.differences
    assert found.test == "paired t-test"
    assert only.p == paired_t_test(second.examples["de"], first.examples["de"])


def test_languages_and_seeds_can_be_chosen(folders, tmp_path):
    shutil.rmtree(folders[1] / "seed-2")
    found = compare(
        folders[:2], seeds=[1, 0], languages=["hi", "de"], names=["A", "B"], permutations=50, resamples=50, quiet=True
    )
    assert found.languages == ["hi", "de"]
    assert [s.name for s in found.systems] == ["A", "B"]
    assert found.systems[0].seeds == [0, 1]
    assert load_system(folders[0], languages=["hi"]).examples.keys() == {"hi"}


def edit(folder, seed=1, **changes):
    path = folder / f"seed-{seed}" / "scores.json"
    record = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(record))


def test_systems_that_do_not_compare(folders):
    raw, fao, other = folders
    shutil.rmtree(fao / "seed-1")
    with pytest.raises(InputError, match=r"fao_1%: has seeds 0, 2, but .*raw has 0, 1, 2; .*--seeds 0 2"):
        compare([raw, fao], quiet=True)
    system(other, {"de": 0.8})
    with pytest.raises(InputError, match=r"worse: was scored in de, but .*raw in de, hi; .*--languages de"):
        compare([raw, other], quiet=True)
    system(other, {"de": 0.8, "hi": 0.5}, task="ner")
    with pytest.raises(InputError, match=r"worse: task is 'ner', but 'pos' in .*raw"):
        compare([raw, other], quiet=True)
    system(other, {"de": 0.8, "hi": 0.5}, metric="span_f1")
    with pytest.raises(InputError, match="worse: metric is 'span_f1', but 'token_f1'"):
        compare([raw, other], quiet=True)
    system(other, {"de": 0.8, "hi": 0.5}, kind=lambda rng, n, chance: words(rng, n + 1, chance))
    with pytest.raises(InputError, match=r"worse against .*raw, de: .*80 with counts and 81"):
        compare([raw, other], quiet=True)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "seed-1" / "scores.json").unlink(), r"seed-1: not finished"),
        (lambda f: (f / "seed-1" / "scores.json").write_text("{"), "scores.json: not JSON"),
        (lambda f: (f / "seed-1" / "examples" / "hi.json").unlink(), "hi.json: No such file"),
        (lambda f: edit(f, seed=1, train_language="de"), "train_language is 'de', but 'en' for seed 0"),
        (lambda f: edit(f, task=None), "must name task, metric, train_language"),
        (lambda f: edit(f, languages={}), "has no languages"),
        (lambda f: edit(f, languages={"de": {}}), "de has no score"),
        (lambda f: edit(f, languages={"de": {"score": 0.5, "examples": 80}}), "has no scores for hi, only for de"),
        (
            lambda f: edit(f, seed=1, languages={c: {"score": 0.5} for c in ("de", "hi")}),
            "de.json: its 80 examples score .* reports 0.500000",
        ),
        (
            lambda f: edit(f, seed=1, languages={c: {"score": float("nan")} for c in ("de", "hi")}),
            "scores.json reports nan",
        ),
        (lambda f: shutil.copytree(f / "seed-1", f / "seed-7"), "seed-7/scores.json: its seed is 1"),
        (lambda f: [shutil.rmtree(one) for one in list(f.iterdir())], "holds no results"),
        (shutil.rmtree, "no such folder"),
    ],
)
def test_a_bad_folder_is_named(folders, spoil, message):
    spoil(folders[1])
    with pytest.raises(InputError, match=message) as caught:
        compare(folders, quiet=True)
    assert "fao_1%" in str(caught.value)


def test_seeds_of_different_tests_are_refused(folders):
    rng = np.random.default_rng(0)
    write_run(folders[1], 2, {"de": words(rng, 79, 0.5), "hi": words(rng, 50, 0.5)})
    with pytest.raises(InputError, match=r"fao_1%, de: .*80 with counts and 79 with counts"):
        load_system(folders[1])
    write_run(folders[1], 2, {code: words(rng, length, 0.5) for code, length in (*LENGTHS.items(), ("ru", 9))})
    with pytest.raises(InputError, match="has no scores for ru, seed 2 has"):
        load_system(folders[1])


def test_names_and_options_are_checked(folders):
    for options, message in [
        ({"folders": folders[:1]}, "at least two folders"),
        ({"folders": [*folders, folders[0] / "seed-0" / ".."]}, "raw: given twice"),
        ({"folders": folders, "names": ["a", "b"]}, "names: one for each of the 3"),
        ({"folders": folders, "names": ["a", "b", "a"]}, "names: .*a, b, a"),
        ({"folders": folders, "seeds": [0, 9]}, "raw: has no seed 9, only 0, 1, 2"),
        ({"folders": folders, "languages": ["ru"]}, "has no scores for ru, only for de, hi"),
        ({"folders": folders, "level": 5}, "level=5"),
    ]:
        with pytest.raises(InputError, match=message):
            compare(options.pop("folders"), quiet=True, **options)


def test_folders_of_one_name_are_told_apart(tmp_path):
    twins = [system(tmp_path / part / "out", {"de": 0.5}) for part in "ab"]
    assert [s.name for s in compare(twins, permutations=9, resamples=9, quiet=True).systems] == list(map(str, twins))


def test_recipe_prints_and_writes_the_tables(folders, tmp_path, capsys):
    files = [tmp_path / "out" / "t.md", tmp_path / "out" / "t.tex"]
    argv = [*map(str, folders), "--permutations", "500", "--resamples", "200"]
    recipe.main([*argv, "--markdown", str(files[0]), "--latex", str(files[1])])
    text = capsys.readouterr().out
    raw, fao = (load_system(folder) for folder in folders[:2])
    cells = {}
    for one in (raw, fao):
        scores = 100 * one.scores("de")
        cells[one.name] = f"{scores.mean():.1f} ± {scores.std(ddof=1):.1f}"
    lines = text.splitlines()
    assert lines[0].split() == ["system", "de", "hi", "average"]
    assert f"{cells['raw']}  " in lines[2]
    assert f"{cells['fao_1%']} *" in lines[3]
    assert lines[4].count("†") == 1
    assert "by the permutation test over examples, after Holm over the 2 languages" in " ".join(lines)

    markdown, latex = (file.read_text() for file in files)
    assert rf"| fao\_1% | {cells['fao_1%']} \* |" in markdown
    assert "| system | de | hi | average |\n| --- | ---: | ---: | ---: |\n" in markdown
    spread = cells["fao_1%"].replace("±", r"$\pm$")
    assert rf"fao\_1\% & {spread} \textsuperscript{{*}} & " in latex
    assert r"\textsuperscript{\dag}" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\bottomrule") == 2
    assert all(line.startswith("%") for line in latex.split(r"\begin{tabular}")[0].splitlines() if line)

    recipe.main([*argv, "--markdown", str(files[0]), "--latex", str(files[1])])
    assert capsys.readouterr().out == text
    assert [file.read_text() for file in files] == [markdown, latex]


def test_names_cannot_break_a_table(folders, capsys):
    found = compare(
        folders[:2], names=["a|b\n`c`<i>", r"[x] \y{z}^~&"], permutations=9, resamples=9, languages=["de"], quiet=True
    )
    markdown = recipe.as_markdown(found)
    assert r"| a\|b \`c\`&lt;i&gt; |" in markdown
    assert r"| \[x\] \\y{z}^\~&amp; |" in markdown
    latex = recipe.as_latex(found)
    assert r"a\textbar{}b `c`\textless{}i\textgreater{} & " in latex
    assert r"{[}x{]} \textbackslash{}y\{z\}\textasciicircum{}\textasciitilde{}\& & " in latex
    assert "average" not in markdown


def test_one_seed_has_no_spread(folders, capsys):
    recipe.main([*map(str, folders), "--seeds", "1", "--permutations", "50", "--resamples", "50"])
    text = capsys.readouterr().out
    assert "±" not in text
    assert "One seed only" in text


def test_recipe_refuses_before_it_computes(folders, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_xalign.evaluation.comparison.compare", lambda *a, **k: pytest.fail("computed"))
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "t.md"):
        with pytest.raises(InputError, match="give another file"):
            recipe.main([*map(str, folders), "--markdown", str(path)])
    with pytest.raises(InputError, match="--folders is missing"):
        recipe.main([])
