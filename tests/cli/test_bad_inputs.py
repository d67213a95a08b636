"""What `hf-xalign` refuses: one line on standard error and status 2, of every command."""

from __future__ import annotations

import torch
from accelerate.commands import launch
from safetensors.torch import save_file
from support.card import make_record
from support.recipe import make_files
from support.refusals import assert_refused

from hf_xalign.cli.main import COMMANDS, main
from hf_xalign.cli.models import load_encoder
from hf_xalign.evaluation.similarity import word_similarity
from hf_xalign.record import write_record

# Words of a command, and a part of the line.
MISTAKES = [
    ("fly", "no command 'fly'; there are align-words, train"),
    ("inspekt", "did you mean inspect?"),
    ("--quick", "unrecognized arguments: --quick (hf-xalign --help"),
    ("inspect m --sorce x", "--source, --target (hf-xalign inspect --help"),
    ("inspect m --source a --target b --measure l2", "--measure: invalid choice: 'l2'"),
    ("inspect no/where --source a --target b", "no/where has no tokenizer"),
    ("report nowhere", "no such file. Pass the folder"),
    ("report nowhere --exampels 3", "unrecognized arguments: --exampels 3 (hf-xalign report --help"),
    ("card nowhere --repo me/model", "unrecognized arguments: --repo me/model (hf-xalign card --help"),
    ("push nowhere me/model --privat", "unrecognized arguments: --privat (hf-xalign push --help"),
    ("evaluate m --links a --data b", "leave --data out"),
    ("evaluate m --device tpu9", "--device tpu9: "),
    ("align-words de=nowhere.tsv", "nowhere.tsv: no such file"),
    ("align-words de=a.tsv --outptu b", "unrecognized arguments: --outptu b (hf-xalign align-words --help"),
    ("compare a b --levle 0.1", "--levle"),
    ("distances --stagse raw=embedded", "--stagse"),
    ("demo --processes x", "--processes: invalid int value: 'x'"),
    ("train nao", "invalid choice: 'nao'"),
    ("train fao --config fao_embeded", "--config fao_embeded: no such file here or in the package; did you mean fao"),
    ("train fao --config=qqq", "no such file here or in the package; the package has "),
    ("train fao --accelerate_config ddp", "--accelerate_config ddp: no such file"),
    ("train fao --processes 0", "--processes 0: at least one is needed"),
    ("train fao --processes 2 --accelerate_config ddp_2gpu", "give one of them"),
    ("train mapping --processes 2", "mapping runs in one process"),
    ("train align_mlm_grid --processes 2", "align_mlm_grid runs in one process"),
]


def test_mistakes_are_one_line_and_status_2(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "launch_command", None)  # nothing is started
    wrong = []
    for words, said in MISTAKES:
        status, error = main(words.split()), capsys.readouterr().err
        if status != 2 or not error.startswith("error: ") or error.count("\n") != 1 or said not in error:
            wrong.append(f"{words}: status {status}, {error}")
    assert not wrong, "\n".join(wrong)
    assert {words.split()[0] for words, _ in MISTAKES} >= COMMANDS.keys()


def test_push_of_a_local_base_says_what_to_do(capsys, tmp_path):
    save_file({"w": torch.zeros(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    write_record(tmp_path, make_record() | {"base_model": {"name": "/home/me/base", "hub_id": None}})
    assert main(["push", str(tmp_path), "me/model"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "base_model is /home/me/base" in error
    assert "hf-xalign push --base_model" in error


def test_sentences_and_options_of_a_similarity(tmp_path):
    encoder = load_encoder(str(make_files(tmp_path) / "base"), torch.device("cpu"))

    def call(**options):
        return lambda: word_similarity(*encoder, **{"source": "die katze", "target": "the cat", **options})

    assert_refused(
        {
            "blank": (call(source=" "), "the source sentence ' ' has no words"),
            "measure": (call(measure="l2"), "measure='l2' is not known"),
            "k": (call(k=0), "k=0"),
            "layer": (call(layer=9), "layer"),
            "pooling": (call(pooling="max"), "pooling"),
        }
    )
