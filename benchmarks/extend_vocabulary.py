"""Remove a script from the built-in encoder's tokenizer, bring it back by `extend-vocabulary`, and train both by FAO.

    python benchmarks/extend_vocabulary.py --pairs bn=DATA/bitext/bn.train.jsonl     # 15 minutes on two busy cores

The pieces of the script get names that no text has, so that its words are unknown and all ids stay. New pieces and
their embeddings come from --pairs alone. Training and scores are those of recipes/configs/fao_builtin.yaml, on
--train and --eval. Prints word retrieval (mean subword, in %).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import regex
import torch
from kept import open_runs, write_runs

from hf_xalign.cli.main import main as command
from hf_xalign.data.load import load_parallel
from hf_xalign.data.pretraining.vocabulary import rebuild, tokenizer_spec
from hf_xalign.evaluation import score_retrieval
from hf_xalign.links.frozen import make_evaluation_links
from hf_xalign.modeling.checkpoint import save_encoder
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.recipes.fao import main as fao
from hf_xalign.record import read_record
from hf_xalign.tables import table

CONFIG = Path(__file__).resolve().parents[1] / "recipes" / "configs" / "fao_builtin.yaml"


def main(argv: list[str] | None = None) -> None:
    """Make the encoders, train what is not in --output yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--pairs", required=True, help="text of the new pieces, LANG=FILE")
    parser.add_argument("--script", default="Bengali", help="name of the script in Unicode")
    parser.add_argument("--pieces", default="4000")
    parser.add_argument("--train", default="builtin:bn", help="text to train on")
    parser.add_argument("--eval", default="builtin:bn", help="text to score on")
    parser.add_argument("--runs", type=int, default=4, help="most runs of FAO in this call; the next call resumes")
    parser.add_argument("--output", type=Path, default=Path("runs/extend_vocabulary"))
    given, options = parser.parse_known_args(argv)
    removed, extended = (given.output / name for name in ("removed", "extended"))
    settings = {name: str(value) for name, value in vars(given).items() if name not in ("output", "runs")}
    kept = open_runs(given.output / "runs.json", {**settings, "options": options})
    if not kept["runs"]:
        remove_script(given.model, given.script, removed)
        made = ["extend-vocabulary", str(removed), given.pairs, "--output", str(extended), "--pieces", given.pieces]
        if command(made):
            raise SystemExit(1)
        kept["runs"].append({"encoder": "script removed", "before": score(str(removed), given.eval, given.train)})
        write_runs(given.output / "runs.json", kept)
    done = {(run["encoder"], run.get("frozen")) for run in kept["runs"]}
    wanted = [(name, frozen) for frozen in ("true", "false") for name in ("untouched", "extended")]
    for name, frozen in [run for run in wanted if run not in done][: given.runs]:
        folder = given.output / f"{name}_{frozen}"
        encoder = given.model if name == "untouched" else str(extended)
        words = ["--config", str(CONFIG), "--model_name_or_path", encoder]
        words += ["--train_data", given.train, "--eval_data", given.eval, "--output_dir", str(folder)]
        words += ["--freeze_embeddings", frozen, "--eval_strategy", "no", "--save_strategy", "no"]
        fao([*words, *options])
        scores = read_record(folder)["scores"]
        found = {stage: next(iter(scores[stage].values()))["retrieval_mean"] for stage in ("before", "after")}
        kept["runs"].append({"encoder": name, "frozen": frozen, **found})
        write_runs(given.output / "runs.json", kept)
    rows = [["encoder", "embeddings", "before", "after FAO"]]
    for run in kept["runs"]:
        how = {"true": "frozen", "false": "trained"}.get(run.get("frozen"), "")
        scores = (f"{100 * run[stage]:.1f}" if stage in run else "" for stage in ("before", "after"))
        rows.append([run["encoder"], how, *scores])
    print(table(rows, 2))


def remove_script(model: str, script: str, folder: Path) -> None:
    """Save an encoder with a tokenizer that cannot write a script."""
    encoder, tokenizer = load_encoder(model, torch.device("cpu"))
    spec = tokenizer_spec(tokenizer)
    written = [entry for entry in spec["model"]["vocab"] if regex.search(rf"\p{{{script}}}", entry[0])]
    for number, entry in enumerate(written):
        entry[0] = chr(0xF0000 + number)
    save_encoder(encoder, folder)
    rebuild(tokenizer, spec).save_pretrained(folder)


def score(model: str, evaluation: str, train: str) -> float:
    """Score word retrieval, mean subword."""
    links = make_evaluation_links(load_parallel([evaluation], split="test"), load_parallel([train]))
    found = score_retrieval(*load_encoder(model, torch.device("cpu")), links, poolings=("mean",))
    return next(iter(found.values()))["retrieval_mean"]


if __name__ == "__main__":
    main()
