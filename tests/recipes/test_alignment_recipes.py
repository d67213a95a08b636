"""The recipes of FAO, MAO and PPA from configuration to folder, on a tiny encoder; and what all recipes do alike."""

import errno
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import ModelCard
from support.launch import slow
from support.numeric import assert_rounding
from support.recipe import command, on_files, output_of, task_command
from support.tiny import SENTENCES, make_links, make_tokenizer
from transformers import AutoModel, AutoTokenizer

import hf_xalign
from hf_xalign.cli.main import main as cli
from hf_xalign.data.load import sources
from hf_xalign.data.parallel import describe_pair
from hf_xalign.errors import InputError
from hf_xalign.recipes import fao, finetune, mao, mapping, ppa
from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.recipes.parts.command import run
from hf_xalign.recipes.parts.parallel import read_linking, read_text
from hf_xalign.record import read_record


def test_fao(fao_run):
    record = fao_run.record
    before, after = (record["scores"][when]["de"] for when in ("before", "after"))
    names = {"retrieval_last", "retrieval_mean_all", "retrieval_mean_types", "pool", "pool_all"}
    assert names <= before.keys() == after.keys() and before != after
    assert record["drift"]["cosine"] < 1
    assert record["links"]["de-en"]["links"] > 0
    assert record["languages"] == {"pivot": "en", "others": ["de"]}
    assert record["data"]["train"][0]["fingerprint"]
    assert {"training", "scoring"} <= set(record["times"]["seconds"])
    assert "before" in fao_run.printed and str(fao_run.folder) in fao_run.printed
    assert "de" in ModelCard.load(fao_run.folder / "README.md").data.language
    assert (fao_run.folder / "eval_links.jsonl").read_text().count("\n") == len(SENTENCES)


@pytest.mark.parametrize("main", [fao.main, *slow([ppa.main])])
def test_held_out_pairs_that_are_trained_on_are_told(files, tmp_path, caplog, capsys, main):
    given = tmp_path / "given.tsv"
    given.write_text("frr\ten\n" + "".join(f"{source}\t{target}\n" for source, target, _ in SENTENCES[:5]))
    ppa_alone = ("--queue_size", "16", "--min_tokens", "2") if main is ppa.main else ()
    texts = ("--eval_data", f"de={files / 'test.tsv'}", f"frr={given}", "--dry_run", "true")
    with caplog.at_level("WARNING", "hf_xalign"):
        main(command(files, *texts, *ppa_alone, "--report_to", "none", out=tmp_path / "out"))
    assert f"{len(SENTENCES) + 5} of the {len(SENTENCES) + 5} held-out rows are in the training text" in caplog.text
    assert "5 pairs of frr" in capsys.readouterr().out


def links_by(folder, files):
    """Number of links that an encoder finds in the training text."""
    text = hf_xalign.load_parallel(str(files / "train.jsonl"), source_lang="de")
    own = {"model": hf_xalign.load(folder), "tokenizer": AutoTokenizer.from_pretrained(folder)}
    return sum(map(len, hf_xalign.align_words(text, "encoder", **own)["links"][:]))


def test_given_links_and_the_encoder_of_a_run_as_aligner(files, fao_run, tmp_path):
    options = ["--aligner", f"encoder:{fao_run.folder}", "--eval_links", str(fao_run.folder / "eval_links.jsonl")]
    options += ["--learning_rate", "0", "--max_steps", "1", "--report_to", "none"]
    fao.main(command(files, *options, out=tmp_path))
    record = read_record(tmp_path)
    assert fao_run.record["scores"]["before"] == record["scores"]["before"] == record["scores"]["after"]
    assert record["links"]["de-en"]["links"] == links_by(fao_run.folder, files) > 0


def drawn(files, most=None, seed=0, *, draw="seed", drop_identical=False, subwords=False, **more):
    pairs = [f"de={files / 'train.jsonl'}", f"de={files / 'pairs.tsv'}"]
    data = DataArguments(max_train_pairs=most, **{"train_data": pairs, "eval_data": pairs[:1], **more})
    text = read_text(data)
    linking = read_linking(data, SimpleNamespace(seed=seed, draw=draw))
    linking = replace(linking, drop_identical=drop_identical, subwords=subwords)
    train, counts, _ = linking.apply(text.train, tokenizer=make_tokenizer())
    return SimpleNamespace(train=train, link_counts=counts, sources=sources(train))


def test_pairs_are_drawn_by_the_seed_after_filtering(files, tmp_path, caplog):
    whole = drawn(files, None)
    assert "were asked for" not in caplog.text
    drawn(files, 100_000)
    assert caplog.text.count("pairs are used: 100,000 were asked for") == 2
    links = dict(zip(whole.train["target"], whole.train["links"]))  # the second source numbers its sentences
    few, more, other = (drawn(files, most, seed) for most, seed in ((5, 0), (9, 0), (5, 1)))
    assert [entry["pairs"] for entry in few.sources] == [5, 5] and len(few.train) == 10
    rows = [[row["target"] for row in corpus.train] for corpus in (few, more, other)]
    assert set(rows[0]) <= set(rows[1]) and rows[0] != rows[2] and rows[0][:5] != whole.train["target"][:5]
    # The links are those of an aligner that saw all the text.
    assert all(links[row["target"]] == row["links"] for row in more.train if row["target"][-1].isdigit())
    assert few.link_counts["de-en"]["pairs"] == 10 and {entry["draw"] for entry in few.sources} == {"seed"}
    first = drawn(files, 5, seed=1, draw="first")
    assert first.train["target"][:5] == whole.train["target"][:5] and len(first.train) == 10
    assert {entry["draw"] for entry in first.sources} == {"first"} and "draw" not in whole.sources[0]
    # Pairs whose only words are identical have no links; they are not among those counted.
    (tmp_path / "same.tsv").write_text("de\ten\n" + "".join(f"x{k}\tx{k}\n" for k in range(40)))
    both = drawn(
        files,
        20,
        train_data=[f"de={tmp_path}/same.tsv", f"de={files / 'train.jsonl'}"],
        drop_identical=True,
        sides_checked=True,
    )
    assert [one["pairs"] for one in both.sources] == [0, 20] and both.link_counts["de-en"]["dropped pairs"]


def test_shards_with_links(files, tmp_path):
    make_links(24).to_parquet(tmp_path / "part-0.parquet")
    corpora = [drawn(files, most, train_data=[str(tmp_path)]) for most in (None, 5)]
    assert corpora[0].train["links"][:] == make_links(24)["links"][:]
    assert [corpus.link_counts["de-en"]["pairs"] for corpus in corpora] == [24, 5]
    with pytest.raises(InputError, match="subword_links=true links tokens, and train_data has words"):
        drawn(files, train_data=[str(tmp_path)], subwords=True)


def mao_on(files, folder, *options):
    mao.main(command(files, *options, "--report_to", "none", out=folder))
    return read_record(folder)


def states(model, tokenizer, **kwargs):
    with torch.no_grad():
        return model(**tokenizer("the cat", return_tensors="pt"), **kwargs).last_hidden_state


def test_mao(mao_run, files):
    folder, record = mao_run.folder, mao_run.record
    before, after = (record["scores"][when]["de"] for when in ("before", "after"))
    assert before != after
    assert before["retrieval_words"] == before["retrieval_mean"]
    # A linear map of a mean is the mean of the linear maps. Both scores are a share of the pool.
    assert_rounding(after["retrieval_words"], after["retrieval_mean"], operations=2)
    shown = output_of(cli, ["evaluate", str(folder), "--tasks", "words", "--device", "cpu"])
    assert "retrieval_words: the module reads whole words" in shown
    assert record["trainable"]["parameters"] == 16 * 16
    assert not list(folder.glob("model*.safetensors"))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), hf_xalign.load(folder)
    found = states(model, tokenizer)
    assert torch.equal(found, states(AutoModel.from_pretrained(folder).eval(), tokenizer))
    assert not torch.allclose(found, states(AutoModel.from_pretrained(files / "base").eval(), tokenizer))


def test_a_random_start_is_scored_before_training(files, tmp_path):
    module = ("--preset", "mbert_transformer", "--num_heads", "2", "--feedforward_size", "32")
    scores = mao_on(files, tmp_path, *module, "--max_steps", "1")["scores"]
    assert scores["untrained"]["de"] != scores["before"]["de"]


def test_ppa(ppa_run, files):
    folder, record = ppa_run.folder, ppa_run.record
    before, after = (record["scores"][when]["de"] for when in ("before", "after"))
    assert before.keys() == after.keys() >= {"sentence_mean", "sentence_cls_to_pivot", "pool_sentences"}
    assert before != after and record["links"] == {} and record["drift"]["sentence_cosine"] < 1
    assert record["paper"]["id"] == "2021.naacl-main.20"
    assert "text     de: 20 pairs" in ppa_run.printed and not (folder / "eval_links.jsonl").exists()
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "transformers" and "Sentence retrieval" in str(card.data)


def test_frozen_probes_are_in_the_record_and_the_card(ppa_run, files):
    before, after = (ppa_run.record["scores"][when] for when in ("before", "after"))
    assert before["en"] == {"probe_slots": 1.0, "probe_yes": 1.0} and before["en"].keys() == after["en"].keys()
    # The encoder in the folder has the scores after training.
    options = ["--probe", "slots", f"en={files / 'en.jsonl'}", f"de={files / 'de.jsonl'}", "--device", "cpu"]
    cli(["evaluate", str(ppa_run.folder), *options, "--json", str(files / "probe.json")])
    own = json.loads((files / "probe.json").read_text())["scores"]["after"]["de"]["probe_slots"]
    assert after["de"]["probe_slots"] == own and "retrieval" not in str(after["en"])
    results = {result.metric_name: result for result in ModelCard.load(ppa_run.folder / "README.md").data.eval_results}
    assert results["probe_slots (de)"].dataset_name == "de.jsonl"
    assert results["probe_slots (de)"].task_name == "Frozen probes"
    assert "probe_slots" in ppa_run.printed
    assert "`probe` is a linear classifier" in (ppa_run.folder / "README.md").read_text()
    assert [source["probe"] for source in ppa_run.record["data"]["probe_test"]] == ["slots", "slots", "yes"]


def test_dry_run_trains_and_writes_nothing(files, tmp_path):
    out = tmp_path / "out"
    sentences = ("--min_tokens", "1", "--max_tokens", "60", "--queue_size", "16")
    pairs = hf_xalign.load_parallel(str(files / "train.jsonl"), source_lang="de")
    first = f"first    {describe_pair(pairs[0])}"
    dry = {
        "fao": (fao, command(files, "--reference", "cache", out=out), ("links", "minutes", "MB of word", first)),
        "mao": (mao, command(files, out=out), ("minutes", "MB of word vectors")),
        "ppa": (ppa, command(files, *sentences, out=out), ("nothing was trained", first)),
        "mapping": (mapping, [*on_files(files, out), "--device", "cpu"], ("nothing was learnt", first)),
        "finetune": (finetune, task_command(files, "--seeds", "0", "1", out=out), ("seeds    2: ",)),
    }
    for name, (recipe, words, said) in dry.items():
        report = [] if recipe is mapping else ["--report_to", "none"]
        text = output_of(recipe.main, [*words, "--dry_run", "true", *report])
        assert all(part in text for part in said), f"{name}: {text}"
        assert not out.exists(), name


def test_a_full_disk_is_one_line_and_other_errors_are_not_swallowed(capsys):
    def full():
        try:
            raise OSError(errno.ENOSPC, "No space left on device", "some/file")
        finally:
            raise ValueError("I/O operation on closed file")

    def broken():
        raise ValueError("something else")

    with pytest.raises(SystemExit) as stop:
        run(full)
    assert stop.value.code == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("error: some/file: cannot be written (No space left") and "HF_XALIGN_CACHE" in line
    with pytest.raises(ValueError, match="something else"):
        run(broken)


# Far more than scores move by rounding; a third of the text gained 5 to 10 points.
GAIN = 0.03
CONFIGS = {"fao_builtin": fao, "mao_linear_builtin": mao}


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
def test_alignment_helps_the_builtin_encoder(config, tmp_path):
    recipe = CONFIGS[config]
    path = Path(recipe.__file__).parent / "configs" / f"{config}.yaml"
    # A third of the text: a few minutes where the whole takes a quarter of an hour.
    fewer = ["--max_train_pairs", "700", "--max_eval_pairs", "200", "--eval_strategy", "no"]
    recipe.main(["--config", str(path), "--output_dir", str(tmp_path), *fewer])
    record = read_record(tmp_path)
    for language in ("de", "bn"):
        before, after = (record["scores"][when][language]["retrieval_mean"] for when in ("before", "after"))
        assert after - before >= GAIN, language
    if recipe is mao:
        assert record["trainable"]["share"] < 0.05
    else:
        assert AutoModel.from_pretrained(tmp_path).dtype == torch.float32
