"""The commands on models and text: `evaluate`, `align-words`, `extend-vocabulary`, examples of `report`."""

import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from support.card import make_record
from support.families import save_base
from support.launch import slow
from support.numeric import assert_rounding
from support.recipe import QUIET, command, make_files, output_of
from support.tiny import SENTENCES, make_links

from hf_xalign.cli.main import main
from hf_xalign.data.encoding import set_prompt
from hf_xalign.data.load import load_parallel
from hf_xalign.data.parallel import distinct_pairs
from hf_xalign.evaluation import encode_words, score_retrieval
from hf_xalign.evaluation.similarity import word_similarity
from hf_xalign.links import align_words
from hf_xalign.links.frozen import keep_links, make_evaluation_links, read_links
from hf_xalign.modeling import word_vectors
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.recipes import fao, mao, mapping, ppa
from hf_xalign.recipes.fao import main as fao_main
from hf_xalign.record import read_record, write_record
from hf_xalign.report.retrievals import changed_retrievals, retrieve_words
from hf_xalign.statistics.comparison import load_system
from hf_xalign.tables import score_rows

CPU = torch.device("cpu")
SOURCE, TARGET = SENTENCES[0][:2]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = make_files(tmp_path_factory.mktemp("models"))
    save_base("bert", folder / "tuned", seed=5)
    return folder


@pytest.fixture(scope="module")
def base(models):
    return load_encoder(str(models / "base"), CPU)


def cosine(x, y):
    product = sum(a * b for a, b in zip(x, y))
    return product / math.sqrt(sum(a * a for a in x) * sum(b * b for b in y))


def test_similarities_against_loops(base):
    rows, columns = (encode_words(*base, text)[0] for text in (SOURCE, TARGET))
    x, y = (text.vectors[:, 0].double().tolist() for text in (rows, columns))
    cosines = [[cosine(a, b) for b in y] for a in x]
    found = word_similarity(*base, SOURCE, TARGET)
    assert (found.source_words, found.target_words) == (SOURCE.split(), TARGET.split())
    # float32: products over 16 numbers of unit rows, and each length another 16; then means over all words.
    rounding = {"operations": 3 * 16, "scale": 1.0, "dtype": torch.float32}
    assert_rounding(found.values, cosines, **rounding)
    assert found.nearest() == [row.index(max(row)) for row in cosines]


def test_text_that_the_tokenizer_does_not_know_is_refused(models, capsys, tmp_path):
    (tmp_path / "ka.tsv").write_text("ჩემი სახლი\tmy house\n" * 5, "utf-8")
    assert main(["evaluate", str(models / "base"), "--data", f"ka={tmp_path}/ka.tsv", "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert "100% of the words in ka have a piece that the tokenizer does not know" in error
    assert "hf-xalign extend-vocabulary MODEL ka=FILE" in error


def test_retrieval_is_compared_by_sentence(models, capsys, tmp_path):
    names = {"before": str(models / "base"), "after": str(models / "tuned")}
    given = ["--data", f"de={models / 'test.tsv'}", "--device", "cpu", "--examples", str(tmp_path / "kept")]
    argv = ["evaluate", names["after"], "--base", names["before"], *given, "--json", str(tmp_path / "scores.json")]
    assert main(argv) == 0
    scores = json.loads((tmp_path / "scores.json").read_text("utf-8"))["scores"]
    folders = {path.name for path in (tmp_path / "kept").iterdir()}
    poolings = {f"retrieval_{kind}{end}" for kind in ("mean", "last") for end in ("", "_all")}
    assert folders == {*poolings, "sentence_mean", "sentence_cls"}
    for metric in folders:
        for stage in names:
            system = load_system(tmp_path / "kept" / metric / stage)
            assert system.scores("de").tolist() == [scores[stage]["de"][metric]] and system.metric == metric
    capsys.readouterr()
    pair = {metric: [str(tmp_path / "kept" / metric / stage) for stage in names] for metric in folders}
    for metric, test in (("retrieval_mean", "permutation test"), ("sentence_mean", "paired t-test")):
        assert main(["compare", *pair[metric]]) == 0
        out = " ".join(capsys.readouterr().out.split())
        kind = metric.partition("_")[0].replace("retrieval", "word") + " retrieval"
        assert f"{kind}, {metric}; mean over seeds 0, in points." in out and f"by the {test} over examples" in out
    assert main(argv) == 2
    assert "before/seed-0: there are example scores already" in capsys.readouterr().err
    kept = json.loads((tmp_path / "kept" / "sentence_mean" / "after" / "seed-0" / "scores.json").read_text("utf-8"))
    assert kept["inputs"] == {f"eval {given[1]}": load_parallel(given[1])._fingerprint}


def test_evaluate_scores_as_the_recipes_do(models, capsys, tmp_path, monkeypatch):
    base, tuned = str(models / "base"), str(models / "tuned")
    data, file = f"de={models / 'test.tsv'}", tmp_path / "scores.json"
    assert main(["evaluate", tuned, "--base", base, "--data", data, "--device", "cpu", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    links = make_evaluation_links(load_parallel([data], split="test"))
    kept = json.loads(file.read_text("utf-8"))
    assert kept["models"] == {"before": base, "after": tuned}
    for stage, name in kept["models"].items():
        options = {"poolings": ("mean", "last"), "all_occurrences": True}
        wanted, found = score_retrieval(*load_encoder(name, CPU), links, **options)["de"], kept["scores"][stage]["de"]
        assert {metric: found[metric] for metric in wanted} == wanted and "sentence_mean" in found
    line = next(line for line in out.splitlines() if " retrieval_mean " in line).split()
    before, after = (kept["scores"][stage]["de"]["retrieval_mean"] for stage in ("before", "after"))
    shown = [f"{100 * before:.1f}", f"{100 * after:.1f}", f"{100 * (after - before):+.1f}"]
    assert line == ["de", "retrieval_mean", *shown]

    # Of the base, whose states the first command kept, nothing is encoded again.
    passes, forward = [], word_vectors._forward
    monkeypatch.setattr(word_vectors, "_forward", lambda model, *a, **kw: passes.append(1) or forward(model, *a, **kw))
    assert main(["evaluate", base, "--base", base, "--data", data, "--device", "cpu", "--json", str(file)]) == 0
    once = len(passes)
    capsys.readouterr()
    assert json.loads(file.read_text("utf-8"))["scores"]["before"] == kept["scores"]["before"]
    assert main(["evaluate", tuned, "--data", data, "--device", "cpu"]) == 0
    capsys.readouterr()
    assert len(passes) == 2 * once > 0

    keep_links(links, tmp_path)
    again = ["evaluate", tuned, "--links", str(tmp_path / "eval_links.jsonl"), "--tasks", "words", "--device", "cpu"]
    again += ["--protocol", "mao"]
    assert main(again) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[2].split() == ["language", "metric", "score"] and "sentence" not in out
    assert f" {100 * after:.1f}\n" in out and "retrieval_last_to_pivot, mao" in out


RUNS = {
    "fao": (fao, ("--max_steps", "2", "--save_steps", "1", "--protocol", "identical", "--start_share", "0")),
    "mao": (mao, ("--max_steps", "2")),
    "ppa": (ppa, ("--max_steps", "2", "--queue_size", "16")),
    "mapping": (mapping, ("--layers", "1", "--pooling", "first")),
}


@pytest.fixture(scope="module")
def run_of(models, tmp_path_factory):
    """Return the folder of a Hindi run of a kind, whose settings name the columns; its text is in the folder above."""
    folder = shutil.copytree(models, tmp_path_factory.mktemp("runs") / "files")
    text = ["--train_data", f"hi={folder / 'train.jsonl'}", "--eval_data", f"hi={folder / 'test.tsv'}"]
    text += ["--source_column", "de", "--target_column", "en"]

    def make(kind):
        if not (folder / kind).exists():
            recipe, options = RUNS[kind]
            words = command(folder, out=kind)
            if kind == "mapping":
                words = [*words[:2], *words[6:8], "--device", "cpu"]
            output_of(recipe.main, [*words, *text, *options])
        return folder / kind

    return make


def evaluated(capsys, *words):
    file = words[0].parent / "evaluated.json"
    assert main(["evaluate", *map(str, words), "--device", "cpu", "--json", str(file)]) == 0
    kept = json.loads(file.read_text("utf-8"))
    assert capsys.readouterr().out.startswith("\n".join(kept["text"]) + "\n\nlanguage ")
    return kept


@pytest.mark.parametrize("kind", [*slow(["mao", "mapping"]), "fao", "ppa"])
def test_a_run_is_scored_as_its_own_table_says(kind, run_of, capsys):
    run = run_of(kind)
    record, found = read_record(run), evaluated(capsys, run)
    assert found["models"] == {"before": record["base_model"]["name"], "after": str(run)}
    shown = score_rows(record)
    assert shown and set(shown) <= set(score_rows(found)) and {row[0] for row in score_rows(found)} == {"hi"}
    by = "from the run" if kind != "ppa" else f"by fast_align fitted on these pairs and 24 training pairs of {run}"
    assert re.fullmatch(rf"hi: 8 pairs of the held-out text of {run}; \d+ links, {by}", *found["text"])
    # Its own file gives the same scores, and the first pairs of a language fewer.
    data = [f"hi={run.parent / 'test.tsv'}", "--source_column", "de", "--target_column", "en"]
    assert evaluated(capsys, run, "--data", *data)["scores"] == found["scores"]
    few = evaluated(capsys, run, "--max_pairs", "5", "--tasks", "sentences")
    assert few["text"] == [f"hi: 5 pairs of the held-out text of {run}"]
    assert few["scores"]["after"]["hi"]["pool_sentences"] == 5
    seen = f"hi={run.parent / 'train.jsonl'}"
    trained = evaluated(capsys, run, "--data", seen, *data[1:], "--tasks", "sentences")
    assert trained["text"][1:] == [f"{seen}: the run was trained on these pairs"]


def test_other_text_is_linked_by_what_the_run_was_trained_on_and_what_is_gone_is_said(run_of, capsys, caplog):
    run, other_run = run_of("fao"), run_of("ppa")
    folder = run.parent
    more = [f"{source}\t{target}\n" for source, target, _ in SENTENCES[:5]]
    (folder / "more.tsv").write_text("".join([*more, "ein hund öffnet das haus\ta dog opens the house\n"]), "utf-8")
    data = ["--data", f"hi={folder / 'more.tsv'}", "--tasks", "words"]
    found = evaluated(capsys, run, *data)
    text = load_parallel([f"hi={folder / 'more.tsv'}"])
    known = load_parallel([f"hi={folder / 'train.jsonl'}"], source_column="de", target_column="en")
    links = make_evaluation_links(text, known)
    assert links["links"][:] != make_evaluation_links(text)["links"][:]
    wanted = score_retrieval(*load_encoder(str(run), CPU), links, all_occurrences=True)["hi"]
    assert {name: found["scores"]["after"]["hi"][name] for name in wanted} == wanted
    assert found["text"][0].endswith(f"fitted on these pairs and 24 training pairs of {run}")
    other = evaluated(capsys, run, "--data", f"sw={folder / 'more.tsv'}", "--tasks", "words")
    assert other["text"][0].endswith("links, by fast_align fitted on these pairs alone")
    checkpoint = evaluated(capsys, run / "checkpoint-2")
    assert checkpoint["scores"]["after"] == evaluated(capsys, run)["scores"]["after"]

    moved = folder / "moved"
    moved.mkdir()
    for name in ("train.jsonl", "test.tsv", "base"):
        (folder / name).rename(moved / name)
    try:
        found = evaluated(capsys, run, *data)
        assert re.search(r"pairs alone \(no training text of.*train\.jsonl: no such file", found["text"][0])
        assert found["text"][1].startswith("the base is not scored (") and found["models"]["before"] is None
        (folder / "train.jsonl").write_text('{"de": "ein hund", "en": "a dog"}\n', "utf-8")
        assert "train.jsonl has changed since the run" in evaluated(capsys, run, *data)["text"][0]
        capsys.readouterr()
        assert main(["evaluate", str(other_run), "--device", "cpu"]) == 2
        said = capsys.readouterr().err
        assert "held-out text of this run cannot be read" in said and "Give --data hi=FILE or --links FILE" in said
    finally:
        for path in moved.iterdir():
            path.replace(folder / path.name)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"languages": {"pivot": "en", "others": ["ta", "si"]}}, "no held-out sentence pairs. Give --data ta=FILE"),
        ({"languages": {"pivot": "tr", "others": ["de"]}}, "has no held-out sentence pairs. Give --data de=FILE"),
        ({"languages": {"pivot": "en", "others": ["de", "si"]}}, "si: not scored, because the package has no"),
    ],
)
def test_a_run_without_pairs_is_scored_on_builtin_text_in_its_languages_alone(
    changes, said, models, tmp_path, capsys, caplog
):
    shutil.copytree(models / "tuned", tmp_path / "run")
    record = make_record(base_model={"name": "new", "hub_id": None}, **changes)
    record["data"] = {"train": [{"source": "ta=x.txt", "hub_id": None, "sentences": 9}], "eval": []}
    write_record(tmp_path / "run", record)
    words = ["evaluate", str(tmp_path / "run"), "--device", "cpu", "--max_pairs", "20", "--tasks", "words"]
    status, found = main(words), capsys.readouterr()
    assert said in found.err + caplog.text
    assert (status == 0) == said.startswith("si") == found.out.startswith("de: 20 pairs of builtin:de; ")


def test_an_extended_encoder_is_trained_and_old_text_keeps_its_vectors(models, base, capsys, tmp_path, monkeypatch):
    rows = [("নতুন ফাইল খোলো", "open new file"), ("ফাইল খোলো", "open file"), ("নতুন ঘর", "new house")] * 8
    pairs, folder = tmp_path / "bn.tsv", tmp_path / "extended"
    pairs.write_text("bn\ten\n" + "".join(f"{s}\t{t}\n" for s, t in rows), encoding="utf-8")
    words = ["extend-vocabulary", str(models / "base"), f"bn={pairs}", "--output", str(folder), "--pieces", "40"]
    with monkeypatch.context() as patch:
        patch.setattr(type(base[1]), "save_pretrained", lambda *_: 1 / 0)
        assert main(words) == 1 and not list(tmp_path.glob("extended*"))
    assert main(words) == 0
    out = capsys.readouterr().out
    assert f"saved: {folder}" in out and "pivot sentences with other pieces than before: 0 of 24\n" in out
    again = [*words[:4], str(tmp_path / "again"), *words[5:]]
    assert main(again) == 0
    for name in ("tokenizer.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    split = ["extend-vocabulary", str(models / "base"), f"de={models}/test.tsv", "--output", str(tmp_path / "split")]
    assert main(split) == 2 and "can write every word" in capsys.readouterr().err
    assert main([*split, "--split_over", "2"]) == 0
    sizes = re.search(r"pieces of a sentence: (\S+) before, (\S+) after", capsys.readouterr().out)
    assert float(sizes[2]) < float(sizes[1])
    model, tokenizer = load_encoder(str(folder), CPU)
    assert tokenizer.unk_token_id not in tokenizer("নতুন ফাইল খোলো").input_ids
    for text in (SOURCE, TARGET):
        assert torch.equal(encode_words(model, tokenizer, text)[0].vectors, encode_words(*base, text)[0].vectors)
    assert main(words) == 2 and "is not an empty folder" in capsys.readouterr().err
    pieces = model.get_input_embeddings().weight[len(base[1]) : len(tokenizer)].clone()
    train = ["--model_name_or_path", str(folder), "--train_data", f"bn={pairs}", "--eval_data", f"bn={pairs}"]
    train += ["--per_device_train_batch_size", "4"]  # the first of the steps warms up
    fao_main([*train, *QUIET, "--freeze_embeddings", "false", "--output_dir", str(tmp_path / "out")])
    tuned, _ = load_encoder(str(tmp_path / "out"), CPU)
    assert not torch.equal(tuned.get_input_embeddings().weight[len(base[1]) : len(tokenizer)], pieces)


def test_pharaoh_links_of_text_without_blanks_are_warned_of(caplog, tmp_path):
    rows = [{"source": "ຟາຍເປີດແລ້ວ", "target": "file-is-open now"}] * 3
    plain, given = tmp_path / "plain.jsonl", tmp_path / "given.jsonl"
    plain.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    words = {"source_words": ["ຟາຍ", "ເປີດ", "ແລ້ວ"]}
    given.write_text("".join(json.dumps(row | words) + "\n" for row in rows), "utf-8")
    for path, warned in ((plain, ["lo"]), (given, [])):
        caplog.clear()
        assert main(["align-words", f"lo={path}", "--output", str(tmp_path / "links")]) == 0
        assert [record.args[1] for record in caplog.records if "have no spaces" in record.msg] == warned


def test_align_words_writes_what_is_read_again(models, base, capsys, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    rows = [f"{source}.\t{target}." for source, target, _ in SENTENCES * 4]
    rows.insert(3, "zzz\tqqqqq")  # linked, if at all, to itself only
    pairs.write_text("\n".join(["de\ten", *rows]) + "\n", "utf-8")
    text = load_parallel([f"de={pairs}"])
    out = tmp_path / "links.txt"
    assert main(["align-words", f"de={pairs}", "--output", str(out)]) == 0
    assert len(out.read_text().splitlines()) == len(rows)
    read = align_words(text, f"pharaoh:{out}", keep_unlinked=True)
    assert read["source_words"][0][-1] == f"{SOURCE.split()[-1]}."  # words are what stands between blanks
    written = [[tuple(map(int, link.split("-"))) for link in line.split()] for line in out.read_text().splitlines()]
    assert [[tuple(link) for link in links] for links in read["links"][:]] == written and any(written)
    capsys.readouterr()

    pairs.write_text("\n".join(["xx\tyy", *rows]) + "\n", "utf-8")
    columns = ["--source_column", "xx", "--target_column", "yy"]
    assert main(["align-words", f"de={pairs}", *columns, "--format", "jsonl"]) == 0
    kept = tmp_path / "links.jsonl"
    kept.write_text(capsys.readouterr().out, "utf-8")
    wanted = distinct_pairs(align_words(text, keep_unlinked=True))
    found = read_links(kept)
    found.to_parquet(tmp_path / "links.parquet")
    assert read_links(tmp_path / "links.parquet")["links"][:] == found["links"][:]
    assert found["links"][:] == wanted["links"][:] and found["source_words"][0][-1] == "."

    # By an encoder, with several links a word.
    words = ["--aligner", "encoder", "--model", str(models / "base"), "--device", "cpu", "--symmetrization", "union"]
    assert (
        main(["align-words", f"de={pairs}", *columns, *words, "--several", "--format", "jsonl", "--output", str(kept)])
        == 0
    )
    options = {"one_to_one": False, "keep_unlinked": True, "model": base[0], "tokenizer": base[1]}
    wanted = align_words(text, "encoder", "union", **options)
    assert [json.loads(line)["links"] for line in kept.read_text("utf-8").splitlines()] == wanted["links"][:]


def test_retrievals_agree_with_the_score_and_examples_are_those_that_changed(models, base):
    links = make_links(8)
    found = [retrieve_words(*model, links) for model in (base, load_encoder(str(models / "tuned"), CPU))]
    score = score_retrieval(*base, links)["de"]["retrieval_mean_to_pivot"]
    first = found[0]["de"]
    assert_rounding((first.answers == np.arange(len(first.links))).mean(), score, operations=2)
    assert first.links.tolist() == [[row, *link] for row, own in enumerate(links["links"][:]) for link in own]
    kept = changed_retrievals(links, *found, examples=1000)["languages"]["de"]
    old, new = (side["de"].answers for side in found)
    right = [(n == a, n == b) for n, (a, b) in enumerate(zip(old, new))]
    assert kept["queries"] == len(old)
    assert (kept["gained"], kept["lost"]) == (right.count((False, True)), right.count((True, False)))
    assert kept["gained"] + kept["lost"] + kept["other"] == len(kept["examples"]) == sum(old != new)
    targets = [links[row]["target_words"][j] for row, _, j in first.links.tolist()]
    rows = first.links[:, 0]
    changed = [(row, a, b) for row, a, b in zip(rows, old, new) if a != b]
    for one, (row, a, b) in zip(kept["examples"], changed, strict=True):
        assert (one["before"]["word"], one["after"]["word"]) == (targets[a], targets[b])
        assert one["after"]["elsewhere"] == (rows[b] != row)
        assert one["linked"] in one["target_words"] and one["word"] < len(one["source_words"])
    few, again = (changed_retrievals(links, *found, examples=3, seed=1)["languages"]["de"] for _ in range(2))
    assert len(few["examples"]) == 3 and few == again


def test_report_makes_examples_when_asked(models, tmp_path, capsys):
    folder = tmp_path / "run"
    save_base("bert", folder, seed=5)
    write_record(folder, make_record() | {"base_model": {"name": str(models / "base"), "hub_id": None}})
    keep_links(make_links(8), folder)
    assert main(["report", str(folder), "--examples", "4", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.endswith(f"saved: {folder / 'report.html'}\n")
    kept = json.loads((folder / "retrievals.json").read_text("utf-8"))["languages"]["de"]
    assert (folder / "report.html").read_text("utf-8").count("<mark>") == len(kept["examples"]) == 4
    assert main(["report", str(folder), "--examples", "0"]) == 2
    # Words of a map's run are those of the mapped layer, which the scores read too.
    mapped = {"base_model": {"name": str(models / "base"), "hub_id": None}, "method": "mapping"}
    write_record(folder, make_record() | mapped | {"settings": {"layers": [0]}})
    assert main(["report", str(folder), "--examples", "4", "--device", "cpu"]) == 0
    found = json.loads((folder / "retrievals.json").read_text("utf-8"))
    stages = [load_encoder(str(name), CPU) for name in (models / "base", folder)]
    wanted = [retrieve_words(*stage, make_links(8), layer=0) for stage in stages]
    assert found == changed_retrievals(make_links(8), *wanted, examples=4)
    # A run with a prompt: its base reads it too, although its tokenizer does not have it.
    prompted = load_encoder(str(folder), CPU)[1]
    set_prompt(prompted, "the ").save_pretrained(folder)
    save_base("bert", tmp_path / "same", seed=5)
    base = {"base_model": {"name": str(tmp_path / "same"), "hub_id": None}, "settings": {"prompt": "the "}}
    (folder / "retrievals.json").unlink()
    write_record(folder, make_record() | base)
    assert main(["report", str(folder), "--examples", "4", "--device", "cpu"]) == 0
    found = json.loads((folder / "retrievals.json").read_text("utf-8"))["languages"]["de"]
    assert (found["gained"], found["lost"], found["other"]) == (0, 0, 0)
    (folder / "eval_links.jsonl").unlink()
    assert main(["report", str(folder), "--examples", "4", "--device", "cpu"]) == 2
    assert "this run kept no links, so it has no words to show. Omit --examples." in capsys.readouterr().err
