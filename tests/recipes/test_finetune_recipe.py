"""The recipes that fine-tune, from files to scores, on a tiny encoder."""

import json
import shutil
from functools import partial

import pytest
from support.labelled import squad, squad_rows, write_json, write_lines
from support.launch import slow
from support.recipe import output_of, task_command
from support.tiny import SENTENCES

from hf_xalign.data.derived.language import DerivedLanguage
from hf_xalign.data.derived.word_order import WordOrder, read_trees
from hf_xalign.errors import InputError
from hf_xalign.hub.files import Contents
from hf_xalign.links.linking import Linking
from hf_xalign.modeling.tagger import BiLSTMCRFForTokenClassification
from hf_xalign.recipes import continual
from hf_xalign.recipes.finetune import FinetuneArguments, main
from hf_xalign.recipes.parts.task_data import load_task
from hf_xalign.record import read_record, write_record
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.statistics.significance import score_interval
from hf_xalign.trainers import TaskConfig, TaskTrainer

EPOCHS = ("--fit_head", "false", "--save_strategy", "epoch")
EPOCHS += ("--num_train_epochs", "2", "--per_device_train_batch_size", "4")
TEXTS = ("--task", "sequence", "--text_columns", "premise", "hypothesis")


def read_task(**options):
    return load_task(FinetuneArguments(**options), TaskConfig(use_cpu=True))


def scores_of(folder, seed=0):
    return json.loads((folder / f"seed-{seed}" / "scores.json").read_text())


@pytest.fixture(scope="module")
def finetuned(files):
    words = task_command(files, *EPOCHS, "--seeds", "0", "1", out="finetuned")
    return files / "finetuned", output_of(main, words)


def test_seeds_leave_scores_and_nothing_else(finetuned):
    out, printed = finetuned
    for seed in (0, 1):
        folder, found = out / f"seed-{seed}", scores_of(out, seed)
        left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        assert left == ["examples/de.json", "examples/hi.json", "scores.json"]
        how = {"task": "token", "metric": "span_f1", "seed": seed, "train_language": "en"}
        assert {name: found[name] for name in how} == how
        assert list(found["languages"]) == ["de", "hi"] and found["settings"]["learning_rate"] == 1e-2
        for language, entry in found["languages"].items():
            examples = ExampleScores.load(folder / "examples" / f"{language}.json")
            assert entry["examples"] == len(examples) == 3 and entry["score"] == examples.score() == entry["span_f1"]
            assert entry["words"] == 10 and entry["lost_words"] == 0
        # The same sentences in two formats.
        assert found["languages"]["de"] == found["languages"]["hi"]
    assert "trained on en; seeds 0, 1" in printed


def test_finished_seeds_are_not_repeated(files, finetuned, tmp_path, monkeypatch, request):
    shutil.copytree(finetuned[0] / "seed-0", tmp_path / "seed-0")
    first, ran, train = scores_of(tmp_path), [], TaskTrainer.train
    monkeypatch.setattr(TaskTrainer, "train", lambda own: ran.append(own.args.seed) or train(own))

    def again(*options):
        return output_of(main, task_command(files, *EPOCHS, *options, out=tmp_path))

    assert "seed 0   finished before" in again("--seeds", "0", "1")
    assert ran == [1] and scores_of(tmp_path) == first
    with pytest.raises(InputError, match=r"num_train_epochs is 2\.0 there and 1\.0 here.*overwrite_output_dir=true"):
        again("--seeds", "0", "--num_train_epochs", "1")
    data = files / "de.jsonl"
    request.addfinalizer(partial(data.write_text, data.read_text()))
    data.write_text((files / "few.jsonl").read_text())
    with pytest.raises(InputError, match=r"text de=.*de\.jsonl is"):
        again("--seeds", "0")
    again("--seeds", "0", "--overwrite_output_dir", "true", "--num_train_epochs", "1")
    assert ran == [1, 0] and scores_of(tmp_path)["languages"]["de"]["examples"] == 2


def test_examples_that_are_trained_on_are_counted(files, tmp_path, caplog):
    with caplog.at_level("WARNING", "hf_xalign"):
        printed = output_of(main, task_command(files, "--dry_run", "true", out=tmp_path / "out"))
    assert "en.jsonl, the first: " in printed and "labels   5: O, B-A, I-A" in printed
    assert "3 of the 3 examples of" in caplog.text and "de.jsonl are in the training text too" in caplog.text


def test_an_interrupted_seed_goes_on(files, finetuned, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    words = task_command(files, *EPOCHS, "--seeds", "0", out=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("hf_xalign.trainers.task.TaskTrainer.score", interrupted)
        with pytest.raises(KeyboardInterrupt):
            main(words)
    folder = tmp_path / "seed-0"
    assert (folder / "run.json").exists() and (folder / "checkpoint-3").exists()
    assert not (folder / "scores.json").exists()
    with pytest.raises(InputError, match=r"run\.json belongs to another run: learning_rate"):
        main([*words, "--learning_rate", "1e-3"])
    shutil.rmtree(folder / "checkpoint-6")  # there is more to train then
    main(words)
    assert scores_of(tmp_path) == scores_of(finetuned[0]) and not (folder / "run.json").exists()


def test_a_kept_model_has_a_record_and_a_card_and_can_be_pushed(files, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(files / "base", base)
    options = ["--model_name_or_path", str(base), "--save_models", "true", "--freeze_embeddings", "true"]
    main(task_command(files, *options, evaluation=("en=en.jsonl", "de=de.jsonl"), out=tmp_path))
    folder, found = tmp_path / "seed-42", scores_of(tmp_path, 42)
    record = read_record(folder)
    task = record["task"]
    assert (task["kind"], task["metric"], task["frozen"]) == ("token", "span_f1", "embeddings")
    assert (task["train_languages"], task["zero_shot"], task["encoder"]) == (["en"], ["de"], None)
    shown = {language: own["span_f1"] for language, own in record["scores"]["after"].items()}
    assert shown == {language: own["score"] for language, own in found["languages"].items()}
    examples = ExampleScores.load(folder / "examples" / "de.json")
    assert record["intervals"]["after"]["de"]["span_f1"] == list(score_interval(examples))
    pushed = Contents(folder, base_model="me/base").read("me/model")
    assert b'from_pretrained("me/model")' in pushed["README.md"] and b"base_model: me/base" in pushed["README.md"]
    assert not any(name.startswith(("examples", "scores")) for name in pushed)
    # Pairs of texts, on an encoder whose folder has the record of an alignment, which is named.
    write_record(base, record)
    evaluation = ("en=texts.jsonl",)
    main(task_command(files, *options, *TEXTS, "--seed", "3", train=evaluation, evaluation=evaluation, out=tmp_path))
    assert read_record(tmp_path / "seed-3")["task"]["encoder"]["method"] == "finetune"
    found = scores_of(tmp_path, 3)
    assert found["metric"] == "accuracy" and found["languages"]["en"]["examples"] == 12


def test_seeds_of_a_tagger_share_the_vectors(files, tmp_path, monkeypatch):
    options = ("--head", "tagger", "--tagger_lstm_size", "8", "--seeds", "1", "0")
    passes, run = [], BiLSTMCRFForTokenClassification.word_vectors
    monkeypatch.setattr(
        BiLSTMCRFForTokenClassification, "word_vectors", lambda *a, **b: passes.append(len(a)) or run(*a, **b)
    )
    main(task_command(files, *options, out=tmp_path / "both"))
    shared = len(passes)
    main(task_command(files, *options[:-1], out=tmp_path / "one"))
    main(task_command(files, *options[:-2], "0", out=tmp_path / "other"))
    assert len(passes) - shared == shared + 1
    assert all(
        scores_of(tmp_path / "both", seed) == scores_of(tmp_path / name, seed)
        for seed, name in ((1, "one"), (0, "other"))
    )


@pytest.mark.parametrize("protocol", [*slow(["reported on the same text"]), "reported on other text"])
def test_rotates_protocols_are_named_as_a_choice_by_the_target(files, tmp_path, monkeypatch, protocol):
    """The paper chooses and reports on the target's validation text; the code it builds on reports on test text."""
    same = protocol == "reported on the same text"
    best = ("--load_best_model_at_end", "true", "--eval_strategy", "epoch", "--selection", "target")
    best += ("--save_models", "true")
    chosen_on = [] if same else ["--select_on", f"de={files / 'few.jsonl'}"]
    seen, metrics = [], TaskTrainer._metrics

    def watch(trainer, dataset):
        seen.append({language: len(part) for language, part in dataset.items()})
        return metrics(trainer, dataset)

    monkeypatch.setattr(TaskTrainer, "_metrics", watch)
    words = task_command(files, *EPOCHS, *best, *chosen_on, evaluation=("de=de.jsonl",), out=tmp_path)
    main(words)
    assert seen and all(sizes == {"de": 3 if same else 2} for sizes in seen)
    folder = tmp_path / "seed-42"
    task = read_record(folder)["task"]
    assert task["selection"] == {"by": "target", "metric": "eval_selection", "languages": ["de"], "scored": same}
    assert task["zero_shot"] == [] and scores_of(tmp_path, 42)["languages"]["de"]["examples"] == 3
    card = " ".join((folder / "README.md").read_text().split())
    assert "chosen by `eval_selection` on validation text in `de`. That is a choice by the target language" in card
    assert ("the scores are of the same text." in card, "the scores are of other text." in card) == (same, not same)
    assert "checkpoint chosen by it" in card and "zero-shot |" not in card
    with pytest.raises(InputError, match=r"select_on=.*no checkpoint is chosen"):
        main(task_command(files, "--select_on", f"de={files / 'few.jsonl'}", out=tmp_path / "none"))


def test_questions(files, tmp_path):
    content = squad(("the cat sees the dog",), ("who sees?", "whom?"), ("the cat", "the dog"))
    train, rows = write_json(tmp_path / "squad.json", content), tmp_path / "squad.jsonl"
    write_lines(rows, squad_rows(content))
    options = ["--task", "questions", "--num_train_epochs", "1", "--max_length", "24"]
    options += ["--max_question_tokens", "8", "--overlap", "4", "--save_models", "true"]
    data = {"train": (f"en={train}",), "evaluation": (f"en={train}", f"de={rows}", f"en+de={train},{rows}")}
    main(task_command(files, *options, **data, out=tmp_path))
    found = scores_of(tmp_path, 42)
    assert found["metric"] == "qa_f1" and list(found["languages"]) == ["en", "de", "en+de"]
    assert all(0 <= found["languages"][code]["score"] <= 1 for code in found["languages"])


def test_code_switched_training_and_mixed_evaluation(files, tmp_path):
    german = [{"premise": "die katze", "hypothesis": "die katze ist offen", "label": "yes"},
              {"premise": "die katze", "hypothesis": "kein hund", "label": "no"}] * 6  # fmt: skip
    de, en = write_lines(tmp_path / "de.jsonl", german), files / "texts.jsonl"
    data = {"train": (f"en={en}", f"de={de}"), "evaluation": (f"de={de}", f"de+en={de},{en}")}
    words = task_command(files, *TEXTS, "--code_switch", f"en={en}", **data, out=tmp_path)
    printed = output_of(main, words)
    assert "train    de: 24 examples of " in printed and "code-switched with" in printed
    assert list(scores_of(tmp_path, 42)["languages"]) == ["de", "de+en"]
    assert "nothing was trained" in output_of(main, [*words, "--dry_run", "true"])


def test_continual(files, tmp_path, monkeypatch):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("yy,xx\n,leer\n" + "".join(f"{other},{own}\n" for own, other, _ in SENTENCES * 3), "utf-8")
    options = ["--pairs", f"de={pairs}", "--source_column", "xx", "--target_column", "yy"]
    options += ["--reference", str(files / "base"), "--max_length", "32"]
    options += ["--on_empty", "drop", "--drop_identical", "true"]
    options += ["--seeds", "0", "1", "--save_models", "true", "--alpha", "0.125"]
    words = task_command(files, *options, "--max_pairs", "9", out=tmp_path)
    drawn, link = [], Linking.apply

    def keep(linking, *args):
        linked = link(linking, *args)
        drawn.append(linked.pairs["source"][:])
        return linked

    monkeypatch.setattr(Linking, "apply", keep)
    assert "trained on en; seeds 0, 1" in output_of(continual.main, words)
    texts = [text for text, _, _ in SENTENCES * 3]
    # Drawn from the whole, each seed its own, in the order of the text.
    assert [len(found) for found in drawn] == [9, 9] and drawn[0] != drawn[1] and texts[:9] not in drawn
    record, found = read_record(tmp_path / "seed-1"), scores_of(tmp_path)
    assert (record["method"], record["task"]["continual"]["alpha"]) == ("continual", 0.125)
    assert "L_task + 0.125 (" in (tmp_path / "seed-1" / "README.md").read_text()
    assert record["data"]["pairs"][0]["source"] == f"de={pairs}"
    assert list(found["languages"]) == ["de", "hi"] and found["settings"]["preset"] == "continual"
    with pytest.raises(InputError, match="adapter: continual alignment trains the encoder itself"):
        continual.main([*words, "--seeds", "2", "--adapter", "somewhere"])


def test_text_named_by_the_code_of_a_derived_language_is_derived(tmp_path):
    file = tmp_path / "tr.conll"
    file.write_text("Ayşe B-PER\nNur I-PER\ngeldi O\n. O\n\nEve O\ngitti O\n. O\n")
    DerivedLanguage("tr", ("inversion",)).save(tmp_path / "derived_language.json")
    options = {"train_data": [f"tr={file}"], "eval_data": [f"tr={file}", f"tr-x-inv={file}"]}
    natural, derived = read_task(**options, derived_language=str(tmp_path)).evaluation.values()
    assert natural.rows["tokens"][0] == ["Ayşe", "Nur", "geldi", "."]
    assert derived.rows["tokens"][:] == [["geldi", "Nur", "Ayşe", "."], ["gitti", "Eve", "."]]
    assert derived.rows["labels"][0] == ["O", "B-PER", "I-PER", "O"] and derived.language == "tr-x-inv"
    assert derived.fingerprint != natural.fingerprint
    file.write_text("Ayşe B-PER\nNur I-PER\ngeldi -100\n")  # a word that is ignored, in a set without O
    ignoring = read_task(**options, derived_language=str(tmp_path)).evaluation["tr-x-inv"]
    assert ignoring.rows["labels"][:] == [["_", "B-PER", "I-PER"]]
    file.write_text("Ayşe B-PER\nNur I-PER\ngeldi O\n. O\n\nEve O\ngitti O\n. O\n")
    plain = read_task(**options).evaluation["tr-x-inv"]  # text that is derived already
    assert plain.rows["tokens"][:] == natural.rows["tokens"][:]
    # Two texts of the Hub in which languages cross, and one of them that is a file which is not there.
    FinetuneArguments(**options | {"eval_data": ["es+en=facebook/xnli:es,facebook/xnli:en"]}).check_files()
    with pytest.raises(InputError, match=r"none\.jsonl: no such file"):
        FinetuneArguments(**options | {"eval_data": ["es+en=facebook/xnli:es,none.jsonl"]}).check_files()
    with pytest.raises(InputError, match=r"derived_language\.json: no such file"):
        FinetuneArguments(**options, derived_language=str(tmp_path / "none")).check_files()


def test_a_derived_word_order_needs_the_trees_of_all_texts(tmp_path):
    tree = {"upos": ["DET", "ADJ", "NOUN", "VERB"], "heads": [3, 3, 4, 0], "deprels": ["det", "amod", "nsubj", "root"]}
    # The adjective of the other language follows its noun.
    other = [("la", "DET", 2, "det"), ("maison", "NOUN", 4, "nsubj"), ("verte", "ADJ", 2, "amod")]
    other.append(("brille", "VERB", 0, "root"))
    lines = [f"{n}\t{word}\t_\t{tag}\t_\t_\t{head}\t{rel}\t_\t_" for n, (word, tag, head, rel) in enumerate(other, 1)]
    (tmp_path / "fr.conllu").write_text("\n".join([*lines, "\n"]) * 40)
    order = WordOrder.learn(read_trees(tmp_path / "fr.conllu"))
    DerivedLanguage("en", ("syntax",), word_order=order).save(tmp_path / "derived_language.json")
    trees = {f"{side}_{name}": values for side in ("text_a", "text_b") for name, values in tree.items()}
    row = {"premise": "the green house shines", "hypothesis": "a red file opens", "label": "entailment"}
    write_lines(tmp_path / "pairs.jsonl", [row | trees, row | trees | {"label": "neutral"}])
    write_lines(tmp_path / "bare.jsonl", [row])
    labels = ["O", "B-A", "I-A", "O"]
    write_lines(tmp_path / "words.jsonl", [tree | {"tokens": row["premise"].split(), "labels": labels}])

    def load(name, task):
        data = [f"en-x-syntax={tmp_path / name}"]
        options = {"task": task, "train_data": data, "eval_data": data, "derived_language": str(tmp_path)}
        return read_task(**options).train[0].rows[0]

    pair, words = load("pairs.jsonl", "sequence"), load("words.jsonl", "token")
    assert (pair["text_a"], pair["text_b"]) == ("the house green shines", "a file red opens")
    assert words["tokens"] == ["the", "house", "green", "shines"] and words["labels"] == labels
    with pytest.raises(InputError, match=r"bare\.jsonl, line 1: no column text_a_upos, .* T_syn needs the tree"):
        load("bare.jsonl", "sequence")
