"""What every recipe does the same way: a dry run, and how it fails."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from support.recipe import command, on_files, output_of, record_of, task_command
from transformers import AutoModel

from hf_xalign.recipes import fao, finetune, mao, mapping, ppa
from hf_xalign.recipes.parts.common import run


def test_dry_run_trains_and_writes_nothing(files, tmp_path):
    out = tmp_path / "out"
    sentences = ("--min_tokens", "1", "--max_tokens", "60", "--queue_size", "16")
    dry = {
        "fao": (fao, command(files, "--reference", "cache", out=out), ("links", "minutes", "MB of word vectors")),
        "mao": (mao, command(files, out=out), ("minutes", "MB of word vectors")),
        "ppa": (ppa, command(files, *sentences, out=out), ("nothing was trained",)),
        "mapping": (mapping, [*on_files(files, out), "--device", "cpu"], ("nothing was learnt",)),
        "finetune": (
            finetune,
            task_command(files, "--seeds", "0", "1", out=out),
            ("nothing was trained", "seeds    2: "),
        ),
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

    with pytest.raises(SystemExit) as stop:
        run(full)
    assert stop.value.code == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("error: some/file: No space left") and "HF_XALIGN_CACHE" in line

    def broken():
        raise ValueError("something else")

    with pytest.raises(ValueError, match="something else"):
        run(broken)


# Far more than scores move by rounding; a third of the text gained 5 to 10 points.
GAIN = 0.03
CONFIGS = {"fao_embedded": fao, "mao_linear_embedded": mao}


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
def test_alignment_helps_the_embedded_encoder(config, tmp_path):
    recipe = CONFIGS[config]
    path = Path(recipe.__file__).parent / "configs" / f"{config}.yaml"
    # A third of the text: a few minutes where the whole takes a quarter of an hour.
    fewer = ["--max_train_pairs", "700", "--max_eval_pairs", "200", "--eval_strategy", "no"]
    recipe.main(["--config", str(path), "--output_dir", str(tmp_path), *fewer])
    record = record_of(tmp_path)
    for language in ("de", "bn"):
        before, after = (record["scores"][when][language]["retrieval_mean"] for when in ("before", "after"))
        assert after - before >= GAIN, language
    if recipe is mao:
        assert record["trainable"]["share"] < 0.05
    else:
        assert AutoModel.from_pretrained(tmp_path).dtype == torch.float32
