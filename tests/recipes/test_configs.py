"""Every configuration that is shipped."""

from pathlib import Path

import hf_xalign.recipes
from hf_xalign.config import parse
from hf_xalign.recipes import finetune
from hf_xalign.recipes.continual import ContinualArguments
from hf_xalign.recipes.finetune import FinetuneArguments
from hf_xalign.recipes.parts.arguments import DataArguments, MappingArguments, PretrainingArguments
from hf_xalign.trainers import AlignMLMConfig, ContinualConfig, FAOConfig, MAOConfig, PPAConfig, TaskConfig

PATHS = sorted((Path(hf_xalign.recipes.__file__).parent / "configs").glob("*.yaml"))
CLASSES = {
    "align_mlm": (PretrainingArguments, AlignMLMConfig),
    "continual": (ContinualArguments, ContinualConfig),
    "fao": (DataArguments, FAOConfig),
    "finetune": (FinetuneArguments, TaskConfig),
    "mao": (DataArguments, MAOConfig),
    "mapping": (DataArguments, MappingArguments),
    "ppa": (DataArguments, PPAConfig),
}


CPU = ["--use_cpu", "true", "--bf16", "false"]


def test_every_config_parses_says_how_to_run_it_and_is_the_preset_of_its_name():
    seen, published = set(), set()
    for path in PATHS:
        text = path.read_text()
        method = next(name for name in CLASSES if path.stem.startswith(f"{name}_"))
        command = f"hf-xalign train {method} --config {path.stem}"
        if "\nbase: " not in text:  # else this is said there
            assert command in text, path.name
            assert "Hardware" in text, path.name
        data, args = parse(CLASSES[method], ["--config", str(path), *(() if method == "mapping" else CPU)])
        assert args.output_dir == f"runs/{path.stem}"
        assert data.corpus == [] if method == "align_mlm" else data.train_data, path.name
        if method == "finetune":
            assert len(data.eval_data) >= (2 if "rotate" in path.stem else 4) and data.seeds, path.name
        if method == "mao" and "builtin" not in path.stem:
            assert f"mao_{args.preset}" == path.stem
            changed = args.changed().keys() - {"preset", "output_dir", "use_cpu", "save_strategy", "seed"}
            assert not changed, f"{path.name} is not the published preset: {changed}"
            published.add(path.stem)
        seen.add(method)
    assert seen == CLASSES.keys() and published


def test_label_names_are_those_of_the_text_not_transformers_keys_of_a_batch():
    words = ["--label_names", "O", "B-PER", "--train_data", "en=builtin:en", "--eval_data", "de=builtin:de"]
    data, args = parse(finetune.ARGUMENTS, [*words, *CPU])
    assert data.label_names == ["O", "B-PER"] and args.label_names is None
