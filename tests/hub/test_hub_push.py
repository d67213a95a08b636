"""Push and load over a Hub on loopback: models, datasets, metrics, and what trainers push."""

import io
import json
import sys
from pathlib import Path
from unittest import mock

import evaluate
import huggingface_hub
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from support.adapters import TEXT, adapt
from support.card import execute, make_record, python_blocks
from support.families import CONFIGS, save_base
from support.launch import slow
from support.loopback import TOKEN, serve_hub
from support.maps import make_map
from support.recipe import QUIET, make_files
from support.tiny import SENTENCES, make_encoder, make_links, make_tokenizer
from support.trackers import offline
from transformers import AutoModel, AutoModelForSequenceClassification, BertForSequenceClassification

from hf_xalign import hub, load
from hf_xalign.cli.main import main
from hf_xalign.data.load import hub_commit, load_parallel, sources
from hf_xalign.errors import InputError
from hf_xalign.metrics.space import metric_space, push_metric
from hf_xalign.modeling import with_alignment
from hf_xalign.modeling.export import save_sentence_transformer
from hf_xalign.modeling.loading import load_tokenizer
from hf_xalign.recipes import fao, mao
from hf_xalign.recipes.parts.arguments import ParallelText
from hf_xalign.record import read_record, write_record
from hf_xalign.report import write_report
from hf_xalign.trainers import FAOConfig, FAOTrainer

SENTENCE_FILES = {"1_Pooling/config.json", "2_Normalize/config.json", "config_sentence_transformers.json"}
SENTENCE_FILES |= {"modules.json", "sentence_bert_config.json"}


@pytest.fixture
def own_hub(tmp_path, monkeypatch):
    with serve_hub(tmp_path, monkeypatch) as running:
        yield running


def keep(folder, **changes):
    write_record(folder, {**make_record(), "base_model": {"name": "me/base", "hub_id": "me/base"}, **changes})


def write(kind, root):
    """Write a base, and a folder of a kind, which it returns."""
    save_base("bert", root / "base")
    keep(root / "base")
    base, folder = AutoModel.from_pretrained(root / "base", add_pooling_layer=False), root / kind
    if kind != "sentences":
        make_tokenizer().save_pretrained(folder)
    if kind == "adapter":
        adapt(base, "languages", "random").save_pretrained(folder)
        keep(folder, adapter={"peft_type": "XALIGN", "languages": ["de", "to"], "pivot": "en"})
    elif kind == "lora":
        lora = LoraConfig(target_modules=["query"], init_lora_weights=False)
        get_peft_model(base, lora).save_pretrained(folder)
    elif kind == "one":
        task = AutoModelForSequenceClassification.from_pretrained(root / "base", num_labels=3)
        with_alignment(task, adapt(base, "pfeiffer transformer", "random")).save_pretrained(folder)
    elif kind == "sentences":
        save_sentence_transformer(base, make_tokenizer(), folder)
        (folder / "README.md").write_text("---\nlicense: mit\n---\n# Sentences\n")
    elif kind == "maps":
        make_map(source_lang="de", target_lang="en").save(folder / "maps" / "de-en.safetensors")
        files = {"files": {"de": "maps/de-en.safetensors"}, "dictionary": {}}
        keep(folder, method="mapping", preset="procrustes", maps=files, settings={})
    elif kind == "task":
        BertForSequenceClassification(CONFIGS["bert"]()).save_pretrained(folder)
    return folder


def run(model, kind):
    language = {"language": "to"} if kind == "adapter" else {}
    with torch.no_grad():
        return model(**TEXT, **language)[0]


@pytest.mark.parametrize("kind", ["adapter", "maps", *slow(["base", "lora", "task", "one", "sentences"])])
def test_what_is_pushed_loads_and_is_nothing_else(kind, own_hub, tmp_path):
    folder = write(kind, tmp_path)
    (folder / "optimizer.pt").write_bytes(b"\x80\x04pickled")
    hub.push(tmp_path / "base", "me/base")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    named = {"base_model": "me/base"} if kind in ("adapter", "lora") else {}
    repo = f"me/{kind}"
    commit = hub.push(folder, repo, message="first", **named)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files = own_hub.files(repo)
    assert own_hub.history(repo)[-1] == "first" and not {"optimizer.pt", "training_args.bin"} & set(files)
    assert ("README.md" in files) == (kind not in ("task", "one"))
    for name, content in files.items():
        assert content[:2] not in (b"\x80\x04", b"PK"), name
        assert str(tmp_path).encode() not in content and TOKEN.encode() not in content, name
    assert kind != "sentences" or set(files) > SENTENCE_FILES
    if kind == "maps":
        assert "maps/de-en.safetensors" in files
    else:
        expected, found = load(folder), load(repo, revision=commit.oid)
        assert type(found) is type(expected) and not found.training
        assert torch.equal(run(found, kind), run(expected, kind))
    if (folder / "results.json").exists():
        card = files["README.md"].decode()
        assert python_blocks(card) and all(f'"{repo}"' in block for block in python_blocks(card))
        assert execute(card)["vectors"].shape[-1] == 16


@pytest.mark.parametrize("recipe", [fao, pytest.param(mao, marks=pytest.mark.slow)], ids=["encoder", "adapter"])
def test_no_path_of_this_machine_leaves_it(recipe, own_hub, tmp_path, monkeypatch):
    """In whatever form it was given: neither by push, nor by W&B, nor in the report or an export."""
    home, tracked = tmp_path / "Adaeze Obi", tmp_path / "tracked"
    make_files(home / "texts")
    words = {f"{t.split()[j]}\t{s.split()[i]}\n" for s, t, links in SENTENCES for i, j in links}
    (home / "texts" / "words.txt").write_text("".join(sorted(words)))
    (home / "run.yaml").write_text("eval_data: de=../texts/test.tsv\nlogging_steps: 1\n")
    (home / "work").mkdir()
    monkeypatch.chdir(home / "work")
    for name, value in {"HOME": home, "HF_XALIGN_CACHE": home / "cache"}.items():
        monkeypatch.setenv(name, str(value))
    arguments = {
        "config": home / "run.yaml",
        "model_name_or_path": home / "texts" / "base",
        "train_data": "de=~/texts/train.jsonl",
        "aligner": f"dictionary:{home}/texts/words.txt",
        "output_dir": home / "runs" / "out",
        "report_to": "wandb",
        "max_steps": 2,
        "save_strategy": "steps",
        "save_steps": 1,
    }
    options = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", [str(home / "env" / "bin" / "hf-xalign"), "train", *options])
    with offline(tracked, WANDB_LOG_MODEL="checkpoint"):
        recipe.main([*options, *QUIET])
        pytest.importorskip("wandb").finish()
    out = home / "runs" / "out"
    assert read_record(out)["base_model"]["name"] == str(home / "texts" / "base")
    hub.push(out, "me/run", base_model="me/base")
    hub.push(out / "checkpoint-2", "me/checkpoint", base_model="me/base")
    write_report(out, tmp_path / "report.html")
    logs = ("debug.log", "debug-internal.log", "debug-core.log")  # never sent
    sent = {path: path.read_bytes() for path in tracked.rglob("*") if path.is_file() and path.name not in logs}
    assert any(path.suffix == ".wandb" for path in sent) and any(b"base_model" in content for content in sent.values())
    sent |= {tmp_path / "report.html": (tmp_path / "report.html").read_bytes()}
    sent |= own_hub.files("me/run") | {f"checkpoint/{k}": v for k, v in own_hub.files("me/checkpoint").items()}
    assert "results.json" in sent
    for name, content in sent.items():
        shown = content.replace(str(tracked).encode(), b"")  # the files that W&B sends lie there
        for private in (b"Adaeze", b"Obi/", str(tmp_path).encode(), str(Path(__file__).parents[2]).encode()):
            assert private not in shown, (name, shown[max(0, shown.find(private) - 80) :][:200])


def test_a_branch_of_a_private_repository_and_a_name_alone(own_hub, tmp_path):
    hub.push(write("one", tmp_path), "me/private", private=True, revision="next")
    assert own_hub.repos["models", "me/private"].private and own_hub.files("me/private") == {}
    config = json.loads(own_hub.files("me/private", revision="next")["adapter_config.json"])
    assert (config["base_model_name_or_path"], config["revision"]) == ("me/private", "next")
    assert type(load("me/private", revision="next")).__name__ == "BertForSequenceClassification"
    hub.push(tmp_path / "base", "short")
    assert 'from_pretrained("me/short")' in own_hub.files("me/short")["README.md"].decode()
    with pytest.raises(InputError, match="private=True: me/short already exists and is public"):
        hub.push(tmp_path / "base", "me/short", private=True)


@pytest.mark.parametrize("kind", ["adapter", "sentences"])
def test_a_dry_run_lists_what_a_push_sends_without_network_or_token(kind, tmp_path, monkeypatch, capsys):
    folder, words = write(kind, tmp_path), ["--base_model", "me/base"] if kind == "adapter" else []
    (folder / "optimizer.pt").write_bytes(b"\x80\x04pickled")
    listing = ["push", str(folder), "me/x", "--private", "--dry_run", *words]
    with monkeypatch.context() as offline:
        offline.setattr("socket.socket.connect", mock.Mock(side_effect=OSError("no network")))
        assert main(listing) == 0
        out = capsys.readouterr().out
        assert main(["push", str(folder), "me/a..b", "--dry_run"]) == 2
    with serve_hub(tmp_path / "hub", monkeypatch) as running:
        assert main([*listing[:4], *words]) == 0
        sent = running.files("me/x")
    listed = dict(line.split() for line in out.splitlines() if line.count("  ") and not line.startswith("in all"))
    assert {name: int(size.replace(",", "")) for name, size in listed.items() if name != "file"} == {
        name: len(content) for name, content in sent.items()
    }
    assert out.startswith("model me/x, branch main; if new, private\n") and "dry run: nothing was sent" in out


def test_another_kind_takes_the_place_of_an_adapter(own_hub, tmp_path):
    hub.push(write("lora", tmp_path), "me/changed", base_model="me/base")
    huggingface_hub.HfApi().upload_file(path_or_fileobj=b"mine", path_in_repo="notes.txt", repo_id="me/changed")
    hub.push(write("task", tmp_path), "me/changed")
    files = own_hub.files("me/changed")
    assert "adapter_config.json" not in files and "adapter_model.safetensors" not in files
    assert files["notes.txt"] == b"mine"  # what is no part of a model is not touched
    assert type(load("me/changed")) is BertForSequenceClassification


def test_no_network_is_said_at_the_first_try_and_an_owner_before_that(own_hub, tmp_path, capsys):
    base = write("base", tmp_path)
    own_hub.broken = "."  # every request
    with mock.patch("time.sleep") as slept, pytest.raises(InputError, match="no connection to the Hub"):
        hub.push(base, "me/base")
    assert not slept.called
    assert main(["push", str(base), "base"]) == 2
    assert capsys.readouterr().err.endswith("error: base: give the owner too, as in your-name/base\n")


def test_a_broken_connection_is_said_and_changes_nothing(own_hub, tmp_path):
    base = write("base", tmp_path)
    hub.push(base, "me/base", message="first")
    files = own_hub.files("me/base")
    record = read_record(base)
    save_base("bert", base, seed=1)
    write_record(base, record)
    for own_hub.broken in ("/commit/", "/api/"):
        with pytest.raises(InputError, match="connection to the Hub"):
            hub.push(base, "me/base")
    assert own_hub.history("me/base") == ["first"] and own_hub.files("me/base") is files
    assert len(own_hub.blobs) == 2
    own_hub.broken = "^/lfs/"  # the weights have arrived, and are not sent again
    hub.push(base, "me/base", message="second")
    assert own_hub.files("me/base")["model.safetensors"] == (base / "model.safetensors").read_bytes()
    for own_hub.broken in ("/resolve/.*safetensors", "/resolve/"):
        with pytest.raises(InputError, match=r"me/base .*connection"):
            load("me/base")
    with pytest.raises(InputError, match=r"no tokenizer that can be loaded, .*\(Server disconnected"):
        load_tokenizer("me/base")
    with pytest.raises(InputError, match="the Hub cannot be reached"):
        load_parallel("me/text", source_lang="de")


def make_trainer(folder, repo):
    args = FAOConfig(
        output_dir=str(folder), use_cpu=True, max_steps=4, save_strategy="steps", save_steps=2, save_total_limit=1,
        learning_rate=1e-3, per_device_train_batch_size=4, disable_tqdm=True, push_to_hub=True, report_to="none",
        hub_model_id=repo, hub_token=TOKEN,
    )  # fmt: skip
    return FAOTrainer(make_encoder(), args, train_dataset=make_links(8), processing_class=make_tokenizer())


def test_saving_a_run_that_is_pushed_saves_it_once(own_hub, tmp_path, monkeypatch):
    trainer, saved = make_trainer(tmp_path / "run", "me/saved"), []
    save = trainer.save_files
    monkeypatch.setattr(trainer, "save_files", lambda *given: saved.append(given[0].name) or save(*given))
    trainer.save_model(str(tmp_path / "other"))  # what is pushed is the run's folder
    assert own_hub.files("me/saved")["model.safetensors"]
    trainer.save_model()
    assert saved == ["other", "run", "run"]


def test_trainers_push_no_pickle(own_hub, tmp_path):
    trainer = make_trainer(tmp_path / "run", "me/run")
    trainer.train()
    trainer.push_to_hub()
    files = own_hub.files("me/run")
    model = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "training_args.json"}
    assert set(files) == {*model, "README.md"} and own_hub.history("me/run") == ["End of training"]
    here = list((tmp_path / "run").rglob("*"))
    assert files["model.safetensors"] == (tmp_path / "run" / "model.safetensors").read_bytes()
    assert not [path for path in here if path.name == "training_args.bin"]
    contents = [*files.values(), *(path.read_bytes() for path in here if path.is_file())]
    assert not [content for content in contents if TOKEN.encode() in content]
    assert not [name for name, content in files.items() if content[:2] in (b"\x80\x04", b"PK")]


def test_a_token_that_the_hub_does_not_know_is_refused_before_anything_is_computed(own_hub, tmp_path):
    args = FAOConfig(output_dir=str(tmp_path), push_to_hub=True, use_cpu=True, report_to="none", hub_token=TOKEN[:-1])
    with pytest.raises(InputError, match="push_to_hub=true: the Hub does not know who you are: Invalid user token"):
        FAOTrainer(make_encoder(), args, train_dataset=None, processing_class=make_tokenizer())


def test_a_metric_is_a_space(own_hub):
    push_metric("word_retrieval", "me/word_retrieval")
    files = own_hub.files("me/word_retrieval", "spaces")
    assert files == metric_space("word_retrieval", "me/word_retrieval")
    assert b"evaluate.load('me/word_retrieval')" in files["README.md"]
    assert evaluate.load("me/word_retrieval").name == "word_retrieval"


def test_the_commit_of_a_dataset_is_known(own_hub):
    card = b"---\nconfigs:\n- config_name: news\n  data_files:\n  - split: test\n    path: news.parquet\n---\n"
    api = huggingface_hub.HfApi()
    api.create_repo("me/text", repo_type="dataset")
    commits = []
    for count in (8, 3):
        columns = {"de": [row[0] for row in SENTENCES[:count]], "en": [row[1] for row in SENTENCES[:count]]}
        Dataset.from_dict(columns).to_parquet(file := io.BytesIO())
        added = {"README.md": card, "news.parquet": file.getvalue()}
        added = [huggingface_hub.CommitOperationAdd(path, content) for path, content in added.items()]
        commits.append(api.create_commit("me/text", added, commit_message="text", repo_type="dataset").oid)
    [entry] = sources(load_parallel("de=me/text:news", split="test", **ParallelText().columns()))
    assert (entry["hub_id"], entry["split"], entry["revision"], entry["pairs"]) == ("me/text", "test", commits[1], 3)
    old = load_parallel("me/text:news", source_lang="de", split="test", revision=commits[0])
    assert (len(old), hub_commit(old)) == (8, commits[0])
