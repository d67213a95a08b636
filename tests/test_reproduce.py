"""The tables of the papers: their rows, that each command parses, and one of each kind run on tiny models and text."""

import json
import re
import shlex
from functools import cache
from pathlib import Path

import hook
import pytest
import scipy.stats
from support.ground import SMALL, run, stand, stand_tables
from support.recipe import output_of

import hf_xalign.cli.main
from hf_xalign.errors import InputError
from hf_xalign.recipes import reproduce
from hf_xalign.recipes.parts.tables import FOLDER, Table, find, setting
from hf_xalign.tasks import find_task

ROOT = Path(__file__).resolve().parent.parent
# Rows of each table and figure that holds an experiment or its settings, counted in the papers.
ROWS = {
    "mao": {"table1": 17, "table2": 44, "table3": 20, "table4": 8, "table5": 12, "table6": 13},
    "align_mlm": {"table1": 5, "table2": 2, "table3": 12, "table4": 2, "table5": 2, "table6": 4, "table7": 3}
    | {"table8": 12, "figure2": 12, "figure3": 15, "table10": 8, "table11": 12},
    "align_mlm_small": {"objectives": 13, "dictionary": 9, "pairs": 4, "overlap": 3, "word_order": 4},
    "rotate": {"table1": 4, "table2": 4, "table3": 12, "figure2": 6},
    "continual": {"table1": 5, "table2": 6, "table3": 3, "table4": 9, "table5": 5, "table6": 4, "table7": 4}
    | {"table8": 2, "table9": 3, "figure1": 5, "figure2": 11},
    "ppa": {"table1": 11, "table2": 15, "table3": 4, "table4": 13, "table5": 27},
}
DRAWN = {"rotate.figure2", "continual.figure1", "continual.figure2"}
# Numbers of the papers' text, to compare the files with.
PUBLISHED = {
    ("mao.table1", "XLM-RoBERTa + FAO"): [7.58, 6.40, 1893.0],
    ("align_mlm.table3", "ALIGN-MLM, Trans + Inv"): [75.5, 68.8, 6.7, 80.0, 64.5, 15.5, 95.0, 92.0, 3.0],
    ("align_mlm_small.objectives", "MLM, Trans + Inv"): [95.0, 56.5, 38.5, 0.3, None, None],
    ("rotate.table3", "FineTuneAlign src→tgt"): [66.91, 77.21, 74.49, 62.29, 50.51, 39.43, 80.90, 20.77, 80.21],
    ("continual.table2", "Mixed-language NLI: Adjust.+continual"): [73.50, 69.09, 69.14, 61.09],
    ("ppa.table5", "translate-train: - CS (2M)"): [82.8, 79.1, 79.0, 78.0, 77.5, 73.6, 77.1, 69.5, 77.1],
}
# Rate, epochs and tokens of CONTINUAL's tasks.
SCHEDULES = {"xnli": [5e-5, 2.0, 128], "wikiann": [2e-5, 3.0, 128], "xquad": [3e-5, 2.0, 384]}
TABLES = {table.name: table for table in find([], Path("runs"))}
# Words whose values make another kind of command.
KINDS = {"--config", "--method", "--preset", "--pooling", "--linked_tokens", "--objective", "--contrast", "--words",
         "--task", "--derive", "--center", "--whiten", "--normalization"}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _words_are_split_once():
    """Keep the words of commands: the tests ask for the same thousands of them."""
    split = cache(shlex.split)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shlex, "split", lambda text, **options: [*split(text, **options)])
        yield


def kind(command):
    words = command.words
    return words[:2] + tuple(word for last, word in zip(("", *words), words) if word.startswith("--") or last in KINDS)


def test_the_list_names_every_table_with_its_rows_and_published_values(capsys):
    printed = output_of(reproduce.main, ["--list"])
    assert printed == output_of(reproduce.main, [])
    assert hf_xalign.cli.main.main(["reproduce", "--list", "ppa.table3"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["ppa.table3  Table 3: encoders     4"]
    listed = {tuple(line.split()[:: len(line.split()) - 1]) for line in printed.splitlines()[2:]}
    wanted = {(f"{paper}.{name}", str(count)) for paper, tables in ROWS.items() for name, count in tables.items()}
    assert listed == wanted and TABLES.keys() == {name for name, _ in wanted}
    for table in TABLES.values():
        for row in table.rows:
            values = [value for value in table.published(row).values() if value is not None]
            drawn = not any(value != "" for value in values)
            assert drawn == (table.name in DRAWN) or table.name.startswith("align_mlm_small"), (table.name, row)
            assert "and so on" not in str(table.rows[row])
            works = table.commands(row, [0]) or "config" in table.rows[row]
            literature = re.search(r"\(.*(19|20)\d\d|XLM|MultiUN|Europarl|EUbookshop|IITB|Total", row)
            assert works or literature, (table.name, row)
    for (name, row), values in PUBLISHED.items():
        assert list(TABLES[name].published(row).values()) == values, (name, row)


def test_every_command_of_every_row_parses_and_has_a_folder_of_its_own():
    commands = {one for table in TABLES.values() for row in table.rows for one in table.commands(row, table.seeds)}
    assert len({one.file for one in commands}) == len(commands) > 1000
    parsers = {}
    for command in commands:
        words = command.words[command.words[0] == "train" :]
        if words[0] not in parsers:
            parsers[words[0]] = hook.parser_of(words[0])
        options, extra = parsers[words[0]].parse_options(words[1:])
        assert not extra and (FOLDER.parent / "configs" / options.get("config", "fao_builtin.yaml")).is_file(), command
        assert not re.search(r"\$", str(command)), command
    assert len(parsers) == 8


def test_tables_of_settings_have_the_published_values():
    for name in ("mao.table6", "align_mlm.table10", "align_mlm.table11"):
        for row in TABLES[name].rows:
            assert TABLES[name].values(row, [0]) == TABLES[name].published(row), (name, row)


def test_the_page_has_every_row():
    page = hook.on_page_markdown((ROOT / "docs/reproduce.md").read_text("utf-8"))
    for table in TABLES.values():
        assert f"hf-xalign reproduce {table.name}\n" in page
        for row in table.rows:
            assert f"| {row} |" in page, (table.name, row)
    command = TABLES["continual.table9"].commands("Adjusted by 100K", [0])[0]
    assert str(command).replace("runs/", "runs/reproduce/") in page and "<!-- reproduce" not in page


@pytest.fixture
def executed(monkeypatch):
    """Commands that ran, in place of which files of scores appear."""
    seen = []

    def execute(words):
        seen.append(words)
        folder = Path(words[words.index("--output_dir") + 1])
        if words[1] == "finetune":
            file, own = folder / "seed-1/scores.json", {code: {"score": 0.5} for code in ("en", "de", "bn")}
            scores = {"languages": own}
        else:
            own = {"retrieval_last_to_pivot, mao": 0.5 - 0.125 * (words[1] == "mao")}
            file, scores = folder / "results.json", {"scores": {"after": {"de": own, "bn": own}}}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(scores | {"times": {"seconds": {"training": 90}}}))
        return 0

    monkeypatch.setattr(reproduce, "execute", execute)
    monkeypatch.setattr(reproduce, "check_text", lambda *_: None)
    return seen


def test_finished_commands_are_kept_and_checked(executed, tmp_path):
    words = ["mao.table1", "--only", "dBERT + FAO", "--output_dir", str(tmp_path), "--seeds", "1"]
    printed = output_of(reproduce.main, words)
    assert "50.00 (35.28)  50.00 (39.72)  1.50 (293.0)" in printed and len(executed) == 1
    assert executed[0][executed[0].index("--seed") + 1] == "1"
    assert "## " not in output_of(reproduce.main, words) and len(executed) == 1
    # Another table needs the same run.
    output_of(reproduce.main, ["mao.table3", *words[1:]])
    assert [one[1] for one in executed] == ["fao", "finetune"]
    with pytest.raises(InputError, match=r"results\.json is of another command: hf-xalign train fao .* or remove"):
        reproduce.main([*words, "--data", "de=other.tsv"])
    file = tmp_path / "mao/distilbert-fao/seed-1/results.json"
    file.write_text(file.read_text().replace("0.5", "0.9"))  # damaged: made again
    output_of(reproduce.main, words)
    assert executed[-1][-2:] == ["--overwrite_output_dir", "true"] and len(executed) == 3
    (file.parent / "checkpoint-5").mkdir()
    (file.parent / "checkpoint-5/complete.json").touch()
    file.unlink()
    output_of(reproduce.main, words)
    assert executed[-1][-2:] == ["--resume_from_checkpoint", "true"]


def test_seeds_are_averaged_and_baselines_subtracted(tmp_path):
    [table] = find(["continual.table6"], tmp_path)
    for seed, gain in ((0, 0.5), (1, 0.75)):
        for command in table.commands("start", [seed]):
            command.file.parent.mkdir(parents=True, exist_ok=True)
            score = 0.25 if "original" in str(command.folder) else gain
            command.file.write_text(json.dumps({"languages": {"hi": {"score": score}}}))
    assert table.values("start", [0, 1]) == dict.fromkeys(table.content["columns"], 37.5)
    assert table.values("start", [0, 1, 2]) == dict.fromkeys(table.content["columns"])


def test_correlations_are_over_rows_and_seeds_or_undefined_in_words(tmp_path, monkeypatch):
    [table] = find(["align_mlm_small.objectives"], tmp_path)
    assert len(table.commands("Alignment and Δ", [0, 1])) == 2 * 36
    numbers = dict(zip(table.systems, range(12), strict=True))
    scores = {"Alignment": lambda row, seed: numbers[row] + 100 * seed, "Δ": lambda row, seed: 9 - numbers[row] - seed}

    def values(table, row, seeds):
        return {column: score(row, seeds[0]) for column, score in scores.items()}

    monkeypatch.setattr(Table, "values", values)
    ours = [[of(row, seed) for row in table.systems for seed in (0, 1)] for of in scores.values()]
    rho, p = (table.correlation("Alignment and Δ", [0, 1], name) for name in ("rho", "p_value"))
    assert rho == pytest.approx(-scipy.stats.spearmanr(*ours).statistic, abs=1e-12) and p < 0.01
    monkeypatch.setitem(scores, "Alignment", lambda row, seed: 0.5)
    said = "undefined: Spearman's rho: alignment is 0.5 in all 12 runs, so ranks are undefined"
    assert table.correlation("Alignment and Δ", [0], "rho") == said
    monkeypatch.setattr(Table, "systems", ["MLM, Trans", "XLM, Trans"])
    said = "undefined: Spearman's rho needs at least 3 runs, got 2"
    assert table.correlation("Alignment and Δ", [0], "p_value") == said


def test_what_is_not_there_is_said(executed, monkeypatch, tmp_path):
    out = ["--output_dir", str(tmp_path / "out")]
    for words, message in [
        (["rotate.tabel3"], r"no table or figure 'rotate\.tabel3'; did you mean 'rotate\.table3'"),
        (["continual.table3", "--only", "Ajusted"], "no row 'Ajusted'; did you mean 'Adjusted'"),
        (["ppa.table1", "--data", "fr"], "data fr: write NAME=PATH"),
        (["ppa.table1", "--data", "vi=x.tsv"], "these tables read no 'vi', only ar, bg"),
    ]:
        with pytest.raises(InputError, match=message):
            reproduce.main([*words, *out])
    monkeypatch.setattr(reproduce, "execute", lambda words: 3)
    with pytest.raises(InputError, match=r"`hf-xalign train fao .*` ended with status 3; run the same command again"):
        reproduce.main(["mao.table1", "--only", "dBERT + FAO", *out])


def test_text_is_looked_for_before_the_first_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "execute", lambda words: pytest.fail("a command ran"))
    words = ["align_mlm_small.objectives", "--only", "MLM, Trans", "--data", "corpus=Salesforce/wikitext:raw"]
    with pytest.raises(InputError, match=r"data/en_ewt\.train\.conllu: no such file.*by --data NAME=PATH"):
        reproduce.main(words)


def test_commands_have_the_settings_of_their_papers():
    kinds = {}
    for table in TABLES.values():
        for row in table.rows:
            kinds |= {(table.paper.name, kind(one)): one for one in table.commands(row, [0])}
    seen = set()
    for (paper, *_), command in kinds.items():
        words = command.words
        method = words[words[0] == "train"]
        config = words[words.index("--config") + 1].removesuffix(".yaml") if "--config" in words else ""
        if paper == "ppa" and method == "ppa":
            assert words[words.index("--draw") + 1] == "first"
        if paper == "rotate" and method == "finetune":
            assert words[words.index("--selection") + 1] == "target"
        if paper == "continual" and method in ("finetune", "continual"):
            found = [setting(command, name) for name in ("learning_rate", "num_train_epochs", "max_length")]
            found[2] = found[2] or find_task(setting(command, "task")).max_length  # where the command sets none
            assert found == SCHEDULES[config.partition("_")[2]], command
        if paper in ("continual", "mao") and method in ("fao", "mao", "finetune", "continual"):
            assert not setting(command, "bf16") and not setting(command, "fp16"), command
            assert paper == "mao" or setting(command, "max_grad_norm") == 0, command
        seen.add((paper, method))
    assert len(seen) == 17


def test_a_dry_run_prints_commands_once_and_runs_nothing(executed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert hf_xalign.cli.main.main(["reproduce", "ppa.table2", "ppa.table3", "--dry_run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines if line.startswith("hf-xalign ")]
    assert len(shown) == len(set(shown)) == 35 and not executed and not list(tmp_path.iterdir())
    assert "# Ours: ppa_mbert_250k.yaml" in lines and "# zero-shot: XLM (MLM): no experiment" in lines


@pytest.mark.slow
@pytest.mark.parametrize("paper", ROWS)
def test_every_row_of_every_table_runs_to_its_end(paper, tmp_path, monkeypatch, capfd):
    stand(tmp_path, monkeypatch)
    tables = find([paper], Path("runs/reproduce"))
    rows = [(table, row) for table in tables for row in table.rows]
    commands = dict.fromkeys(command for table, row in rows for command in table.commands(row, [0]))
    stand_tables(commands)
    task = (*SMALL["fao"][:10], "--per_device_train_batch_size", "2")
    for name, options in (("finetune", task), ("continual", task), ("distances", ())):
        monkeypatch.setitem(SMALL, name, options)
    monkeypatch.setattr(reproduce, "execute", lambda words: run(["hf-xalign", *words]))
    failed = []  # all are worth knowing: the whole takes many minutes
    for number, command in enumerate(commands, 1):
        try:
            reproduce.call(command)
        except (AssertionError, InputError) as error:
            failed.append(f"{command}: {error.__cause__!r}")
        with capfd.disabled():
            print(f"{paper}: {number} of {len(commands)} commands, {len(failed)} failed", flush=True)
    assert not failed, "\n".join(failed)
    for command in commands:
        said = json.loads(command.file.read_text("utf-8"))
        if "--draw" in command.words:
            assert {entry["draw"] for entry in said["data"]["train"]} == {"first"}
            assert "draw `first`" in (command.folder / "README.md").read_text("utf-8")
        if "--selection" in command.words:
            assert said["settings"]["selection"] == "target"
    for table, row in rows:
        for column, value in table.values(row, [0]).items():
            assert isinstance(value, (int, float)) or not table.parts(row, column, 0), (table.name, row, column)
            if "correlate" in table.rows[row] and table.published(row)[column] is not None:
                assert isinstance(value, float) or value.startswith("undefined: ")
