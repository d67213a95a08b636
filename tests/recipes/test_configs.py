"""Every configuration that is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

import hf_xalign.recipes.flow
from hf_xalign.config import parse
from hf_xalign.recipes.common import DataArguments
from hf_xalign.recipes.continual import ContinualArguments
from hf_xalign.recipes.mapping_arguments import MappingArguments
from hf_xalign.recipes.pretraining_arguments import PretrainingArguments
from hf_xalign.recipes.task_material import TaskArguments
from hf_xalign.trainers import AlignMLMConfig, ContinualConfig, FAOConfig, MAOConfig, PPAConfig, TaskConfig

CONFIGS = Path(hf_xalign.recipes.flow.__file__).parent / "configs"
CLASSES = {
    "align_mlm": (PretrainingArguments, AlignMLMConfig),
    "continual": (ContinualArguments, ContinualConfig),
    "fao": (DataArguments, FAOConfig),
    "finetune": (TaskArguments, TaskConfig),
    "mao": (DataArguments, MAOConfig),
    "mapping": (DataArguments, MappingArguments),
    "ppa": (DataArguments, PPAConfig),
}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_config_parses_and_says_how_to_run_it(path):
    text = path.read_text()
    method = next(name for name in CLASSES if path.stem.startswith(f"{name}_"))
    launcher = "python" if method == "mapping" else "accelerate launch"
    assert f"{launcher} recipes/{method}.py --config recipes/configs/{path.name}" in text
    assert "Hardware" in text
    options = ["--config", str(path)]
    if method != "mapping":
        options += ["--use_cpu", "true", "--bf16", "false"]
    data, args = parse(CLASSES[method], options)
    assert args.output_dir == f"runs/{path.stem}"
    assert data.corpus == [] if method == "align_mlm" else data.train_data


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("mao_*_*.yaml")), ids=lambda p: p.stem)
def test_published_configs_use_the_preset_of_their_name(path):
    if "embedded" in path.stem:
        return
    _, args = parse((DataArguments, MAOConfig), ["--config", str(path), "--use_cpu", "true"])
    assert f"mao_{args.preset}" == path.stem
    assert args.changed().keys() <= {"preset", "output_dir", "use_cpu", "save_strategy", "seed"}
