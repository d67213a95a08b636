"""The fine-tuning recipe from files to scores, on a tiny encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.families import save_base

import hf_xalign
from hf_xalign.config import parse
from hf_xalign.errors import InputError
from hf_xalign.evaluation.bootstrap import score_interval
from hf_xalign.evaluation.examples import ExampleScores
from hf_xalign.hub_files import Contents
from hf_xalign.modeling.tagger import BiLSTMCRFForTokenClassification
from hf_xalign.recipes import seeds
from hf_xalign.recipes.continual import main as continual
from hf_xalign.recipes.finetune import main
from hf_xalign.recipes.task_material import TaskArguments
from hf_xalign.record import read_record
from hf_xalign.trainers.task_config import TaskConfig

CONFIGS = Path(seeds.__file__).parent / "configs"
ROWS = [
    {"tokens": ["the", "cat", "is", "open"], "labels": ["O", "B-A", "O", "O"]},
    {"tokens": ["open", "the", "house", "file"], "labels": ["O", "O", "B-B", "I-B"]},
    {"tokens": ["no", "dog"], "labels": ["O", "B-A"]},
]
PAIRS = [
    {"premise": "the cat", "hypothesis": "the cat is open", "label": "yes"},
    {"premise": "the cat", "hypothesis": "no dog", "label": "no"},
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def files(tmp_path):
    save_base("bert", tmp_path / "base")
    write(tmp_path / "en.jsonl", ROWS * 4)
    write(tmp_path / "de.jsonl", ROWS)
    write(tmp_path / "pairs.jsonl", PAIRS * 6)
    (tmp_path / "hi.conll").write_text("\n\n".join("\n".join(map(" ".join, zip(*row.values()))) for row in ROWS))
    return tmp_path


def command(files, *options, evaluation=("de=de.jsonl", "hi=hi.conll"), train=("en=en.jsonl",)):
    def place(item):
        language, _, name = item.partition("=")
        return f"{language}={files / name}"

    return [
        "--model_name_or_path", str(files / "base"),
        "--train_data", *map(place, train),
        "--eval_data", *map(place, evaluation),
        "--output_dir", str(files / "out"),
        "--use_cpu", "true", "--report_to", "none", "--disable_tqdm", "true",
        "--num_train_epochs", "1", "--learning_rate", "1e-2",
        *options,
    ]  # fmt: skip


def scores_of(files, seed=0):
    return json.loads((files / "out" / f"seed-{seed}" / "scores.json").read_text())


def test_seeds_leave_scores_and_nothing_else(files, capsys):
    main(command(files, "--seeds", "0", "1", "--save_strategy", "epoch"))
    for seed in (0, 1):
        folder = files / "out" / f"seed-{seed}"
        left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        assert left == ["examples/de.json", "examples/hi.json", "scores.json"]
        found = scores_of(files, seed)
        assert {k: found[k] for k in ("task", "metric", "seed", "train_language")} == {
            "task": "token",
            "metric": "span_f1",
            "seed": seed,
            "train_language": "en",
        }
        assert list(found["languages"]) == ["de", "hi"] and found["settings"]["learning_rate"] == 1e-2
        for language, entry in found["languages"].items():
            examples = ExampleScores.load(folder / "examples" / f"{language}.json")
            assert entry["examples"] == len(examples) == 3 and entry["score"] == examples.score() == entry["span_f1"]
            assert entry["words"] == 10 and entry["lost_words"] == 0
        # The same sentences in two formats.
        assert found["languages"]["de"] == found["languages"]["hi"]
    printed = capsys.readouterr().out
    assert "train    en: 12 examples" in printed and "labels   5\nscore    span_f1" in printed
    assert "trained on en; seeds 0, 1" in printed and "mean" in printed


def test_finished_seeds_are_not_repeated(files, capsys, monkeypatch):
    main(command(files, "--seeds", "0"))
    first = scores_of(files)
    ran = []
    run = seeds._run_seed
    monkeypatch.setattr(seeds, "_run_seed", lambda *given: ran.append(given[-1]["seed"]) or run(*given))
    main(command(files, "--seeds", "0", "1"))
    assert ran == [1] and scores_of(files) == first
    assert "seed 0   finished before" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"num_train_epochs is 1\.0 there and 2\.0 here.*overwrite_output_dir=true"):
        main(command(files, "--seeds", "0", "--num_train_epochs", "2"))
    write(files / "de.jsonl", ROWS[:2])
    with pytest.raises(InputError, match=r"de\.jsonl \(de\) is"):
        main(command(files, "--seeds", "0"))
    main(command(files, "--seeds", "0", "--overwrite_output_dir", "true"))
    assert ran == [1, 0] and scores_of(files)["languages"]["de"]["examples"] == 2


def test_an_interrupted_seed_goes_on(files, monkeypatch):
    options = ["--save_strategy", "epoch", "--num_train_epochs", "3", "--per_device_train_batch_size", "4"]
    main(command(files, *options, "--seeds", "0"))
    expected = scores_of(files)
    (files / "out").rename(files / "whole")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hf_xalign.trainers.task.TaskTrainer.score", interrupted)
        with pytest.raises(KeyboardInterrupt):
            main(command(files, *options, "--seeds", "0"))
    folder = files / "out" / "seed-0"
    assert (
        (folder / "run.json").exists() and (folder / "checkpoint-6").exists() and not (folder / "scores.json").exists()
    )
    with pytest.raises(InputError, match=r"run\.json is of another run: learning_rate"):
        main(command(files, *options, "--seeds", "0", "--learning_rate", "1e-3"))
    main(command(files, *options, "--seeds", "0"))
    assert scores_of(files) == expected and not (folder / "run.json").exists()


def test_pairs_of_texts_and_kept_models(files):
    pairs = ("--task", "sequence", "--text_columns", "premise", "hypothesis", "--save_models", "true")
    main(command(files, *pairs, "--seed", "3", train=["en=pairs.jsonl"], evaluation=["en=pairs.jsonl"]))
    found = scores_of(files, 3)
    assert found["metric"] == "accuracy" and found["languages"]["en"]["examples"] == 12
    config = json.loads((files / "out" / "seed-3" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"] and config["id2label"] == {
        "0": "no",
        "1": "yes",
    }


def test_a_kept_model_has_a_record_and_a_card_and_can_be_pushed(files):
    options = ["--save_models", "true", "--freeze_embeddings", "true"]
    main(command(files, *options, evaluation=["en=en.jsonl", "de=de.jsonl"]))
    folder = files / "out" / "seed-42"
    record = read_record(folder)
    assert (record["method"], record["preset"], record["seed"]) == ("finetune", "ours", 42)
    task = record["task"]
    assert (task["kind"], task["metric"], task["frozen"]) == ("token", "span_f1", "embeddings")
    assert (task["train_languages"], task["zero_shot"], task["encoder"]) == (["en"], ["de"], None)
    assert task["labels"] == ["O", "B-A", "I-A", "B-B", "I-B"]
    found = scores_of(files, 42)
    assert {language: own["span_f1"] for language, own in record["scores"]["after"].items()} == {
        language: own["score"] for language, own in found["languages"].items()
    }
    examples = ExampleScores.load(folder / "examples" / "de.json")
    assert record["intervals"]["after"]["de"]["span_f1"] == list(score_interval(examples))
    assert [entry["examples"] for entry in record["data"]["eval"]] == [12, 3]
    card = (folder / "README.md").read_text()
    assert "the local model `base` with a" in " ".join(card.split()) and str(files) not in card
    pushed = Contents(folder, base_model="me/base").read("me/model")
    assert b'from_pretrained("me/model")' in pushed["README.md"] and b"base_model: me/base" in pushed["README.md"]
    assert {"config.json", "model.safetensors", "tokenizer.json", "results.json"} <= pushed.keys()
    assert not any(name.startswith(("examples", "scores")) for name in pushed)
    # An alignment of which the encoder's folder has a record is named.
    (files / "base" / "results.json").write_text((folder / "results.json").read_text())
    main(command(files, *options, "--overwrite_output_dir", "true"))
    assert read_record(folder)["task"]["encoder"]["method"] == "finetune"


TAGGER = ("--head", "tagger", "--tagger_lstm_size", "8", "--num_train_epochs", "2")


def test_tagger(files, capsys):
    main(command(files, *TAGGER, "--save_models", "true"))
    folder = files / "out" / "seed-42"
    found = scores_of(files, 42)
    assert (found["metric"], found["settings"]["preset"]) == ("span_f1", "rotate")
    assert (found["settings"]["head"], found["settings"]["tagger_lstm_size"]) == ("tagger", 8)
    model = hf_xalign.load(folder)
    assert type(model) is BiLSTMCRFForTokenClassification and model.config.bio and model.config.lstm_size == 8
    record = read_record(folder)
    assert (record["task"]["head"], record["task"]["frozen"]) == ("tagger", "encoder")
    assert "BiLSTM-CRF" in record["objective"] and "BiLSTM-CRF tagger" in (folder / "README.md").read_text()
    assert record["trainable"]["parameters"] == sum(
        p.numel() for name, p in model.named_parameters() if not name.startswith("backbone")
    )
    main(command(files, *TAGGER, "--save_models", "true"))
    assert "seed 42   finished before" in capsys.readouterr().out


def test_a_tagger_is_for_words_alone(files):
    pairs = ("--task", "sequence", "--text_columns", "premise", "hypothesis")
    with pytest.raises(InputError, match="head=tagger labels words, and the task is sequence"):
        main(command(files, *TAGGER, *pairs, train=["en=pairs.jsonl"], evaluation=["en=pairs.jsonl"]))
    with pytest.raises(InputError, match="tagger_lstm_size is of the tagger: add head=tagger"):
        main(command(files, "--tagger_lstm_size", "8"))
    assert not (files / "out").exists()


QUESTIONS = [
    ("0", "the cat sees the dog", "who sees?", "the cat"),
    ("1", "the house is open", "what is open?", "the house"),
]


def squad(rows):
    """SQuAD's JSON."""
    return {
        "data": [
            {
                "paragraphs": [
                    {
                        "context": context,
                        "qas": [
                            {
                                "id": name,
                                "question": question,
                                "answers": [{"text": answer, "answer_start": context.index(answer)}],
                            }
                        ],
                    }
                    for name, context, question, answer in rows
                ]
            }
        ]
    }


def test_questions(files, capsys):
    (files / "squad.json").write_text(json.dumps(squad(QUESTIONS)))
    write(
        files / "squad.jsonl",
        [
            {
                "id": name,
                "question": question,
                "context": context,
                "answers": {"text": [answer], "answer_start": [context.index(answer)]},
            }
            for name, context, question, answer in QUESTIONS
        ],
    )
    options = ["--task", "questions", "--num_train_epochs", "30", "--max_length", "24"]
    options += ["--max_question_tokens", "8", "--overlap", "4", "--save_models", "true"]
    main(command(files, *options, train=["en=squad.json"], evaluation=["en=squad.json", "de=squad.jsonl"]))
    found = scores_of(files, 42)
    assert found["metric"] == "qa_f1" and found["languages"]["en"] == found["languages"]["de"]
    assert found["languages"]["en"]["score"] > 0.9  # the questions of training
    assert "labels" not in capsys.readouterr().out
    record = read_record(files / "out" / "seed-42")
    assert record["task"]["kind"] == "questions" and [e["language"] for e in record["data"]["eval"]] == ["en", "de"]
    with pytest.raises(InputError, match="label_column is of labelled texts"):
        main(command(files, *options, "--label_column", "a", train=["en=squad.json"], evaluation=["en=squad.json"]))


def test_encoder_of_each_seed_and_label_file(files):
    save_base("bert", files / "base-0", seed=0)
    save_base("bert", files / "base-1", seed=1)
    (files / "labels.json").write_text(json.dumps({"bio": ["O", "B-A", "B-B", "B-C"]}))
    options = ["--model_name_or_path", str(files / "base-{seed}"), "--labels", f"{files / 'labels.json'}:bio"]
    main(command(files, *options, "--seeds", "0", "1"))
    one, other = scores_of(files, 0), scores_of(files, 1)
    assert one["settings"] == other["settings"] and one["inputs"]["model"] != other["inputs"]["model"]


def test_dry_run_trains_nothing(files, capsys):
    main(command(files, "--dry_run", "true", "--seeds", "0", "1"))
    printed = capsys.readouterr().out
    assert "nothing was trained" in printed and "seeds    2: the time is that of one" in printed
    assert not (files / "out").exists()


def test_bad_input_is_named_before_any_compute(files):
    write(files / "bad.jsonl", [*ROWS, {"tokens": ["a"], "labels": ["B-C"]}])
    with pytest.raises(InputError, match=r"bad\.jsonl, line 4 \(word 1, 'a'\): label 'B-C' is none of the 5 labels"):
        main(command(files, evaluation=["de=bad.jsonl"]))
    with pytest.raises(InputError, match="no evaluation text in bn"):
        main(command(files, "--languages", "de", "bn"))
    with pytest.raises(InputError, match="metric=span_f1 is of words"):
        main(
            command(
                files,
                *("--task", "sequence", "--text_columns", "premise", "hypothesis", "--metric", "span_f1"),
                train=["en=pairs.jsonl"],
                evaluation=["en=pairs.jsonl"],
            )
        )
    with pytest.raises(InputError, match="--train_data is missing"):
        main(["--use_cpu", "true", "--output_dir", str(files / "out")])
    assert not (files / "out").exists()


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("finetune_*.yaml")), ids=lambda path: path.stem)
def test_configs_parse_and_say_how_to_run_them(path):
    text = path.read_text()
    assert f"accelerate launch recipes/finetune.py --config recipes/configs/{path.name}" in text and "Hardware" in text
    data, args = parse((TaskArguments, TaskConfig), ["--config", str(path), "--use_cpu", "true", "--bf16", "false"])
    assert args.output_dir == f"runs/{path.stem}" and len(data.eval_data) >= 4 and data.seeds


def test_continual(files, capsys):
    pairs = ["der hund\tthe dog", "die katze\tthe cat", "das haus ist offen\tthe house is open"] * 4
    (files / "pairs.tsv").write_text("\n".join(f"{pair} {k}" for k, pair in enumerate(pairs)) + "\n")
    options = ["--pairs", f"de={files / 'pairs.tsv'}", "--reference", str(files / "base"), "--max_length", "32"]
    continual(command(files, *options, "--seeds", "0", "1", "--save_models", "true", "--alpha", "0.125"))
    record = read_record(files / "out" / "seed-1")
    assert (record["method"], record["task"]["continual"]["alpha"]) == ("continual", 0.125)
    assert "L_task + 0.125 (" in (files / "out" / "seed-1" / "README.md").read_text()
    assert record["data"]["pairs"][0]["source"] == f"de={files / 'pairs.tsv'}"
    found = scores_of(files)
    assert list(found["languages"]) == ["de", "hi"] and found["settings"]["preset"] == "continual"
    assert "trained on en; seeds 0, 1" in capsys.readouterr().out
    with pytest.raises(InputError, match="adapter: continual alignment trains the encoder itself"):
        continual(command(files, *options, "--seeds", "2", "--adapter", "somewhere"))
