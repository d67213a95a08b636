"""Score maps on top of the encoder, FAO and MAO: word retrieval and lexicon induction in several languages.

    python benchmarks/mapping_table.py --data DATA --output runs/mapping_table.json   # an hour; resumable
    python benchmarks/mapping_table.py --data DATA --languages de --encoders raw --max_train_pairs 200 \\
        --max_eval_pairs 50 --max_words 1000 --sentences_per_word 2                        # a trial
    python benchmarks/mapping_table.py --show runs/mapping_table.json

DATA is a folder with `bitext/LANG.train.jsonl`, `bitext/LANG.test.jsonl` (columns source, target, English the target),
`dict/en-LANG.train.txt`, `dict/en-LANG.test.txt` (MUSE's format) and `text/LANG.*.txt.gz`, English included.

FAO and MAO are trained by the recipes first, on the same pairs that the maps learn from, where `--models` does not
hold them yet. Each encoder then runs once over the text, and every method learns one map a language from the same
vectors: of linked words (parallel supervision) or of anchors (dictionary supervision). The score is word retrieval by
CSLS on held-out linked words, and lexicon induction by CSLS among all anchors, mean of both directions; `raw` is no
map at all. `--pooling last --protocol mao` adds MAO's published protocol, towards English. Finished encoders are in
the JSON file of `--output` and are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from hf_xalign.cache import write_text
from hf_xalign.recipes.parts.arguments import DataArguments, MappingArguments

ROOT = Path(__file__).resolve().parents[1]
RECIPES = {
    "fao": ["fao.py", "fao_builtin.yaml", "--eval_strategy", "no"],
    "mao": ["mao.py", "mao_linear_builtin.yaml"],
}
METHODS: dict[str, dict[str, Any] | None] = {
    "raw": None,
    "Procrustes": {"method": "procrustes", "center": False},
    "Procrustes, centered": {"method": "procrustes", "center": True},
    "RCSLS": {"method": "rcsls"},
    "VecMap": {"method": "vecmap"},
}
SUPERVISION = ("parallel", "dictionary")

Row = dict[str, Any]
"""Of one encoder, supervision and method: `scores` and `intervals` by language, and `seconds` of learning."""


def train_encoder(name: str, folder: Path, options: list[str]) -> str:
    """The encoder of a row: the built-in one, or one that a recipe trains into `folder` unless it is there."""
    if name == "raw":
        return "builtin"
    if not (folder / "results.json").is_file():
        recipe, config, *more = RECIPES[name]
        command = [sys.executable, str(ROOT / "recipes" / recipe), "--config", str(ROOT / "recipes/configs" / config)]
        command += [*options, *more, "--save_strategy", "no", "--report_to", "none", "--output_dir", str(folder)]
        subprocess.run([*command, "--overwrite_output_dir", "true"], check=True, stdout=subprocess.DEVNULL)
    return str(folder)


def run_encoder(data: DataArguments, args: MappingArguments) -> dict[str, Any]:
    """All supervisions and methods on one encoder: `rows`, `anchors`, `links`, and `seconds` of the passes."""
    from hf_xalign.recipes.parts.mapping_data import load_mapping

    trainer = load_mapping(data, args)
    start = time.perf_counter()
    trainer.extract()
    seconds = time.perf_counter() - start
    rows: dict[str, Row] = {}
    for name, settings in METHODS.items():
        if settings is None:
            scores, intervals = trainer.score()
            rows[name] = {"scores": scores, "intervals": intervals, "seconds": 0.0}
            continue
        for supervision in SUPERVISION:
            trainer.args = replace(args, supervision=supervision, **settings)
            start = time.perf_counter()
            learnt = {language: trainer.learn(language) for language in trainer.languages}
            taken = time.perf_counter() - start
            scores, intervals = trainer.score(learnt)
            rows[f"{name}, {supervision}"] = {
                "scores": scores,
                "intervals": intervals,
                "seconds": taken,
                "dictionary": dict(trainer.coverage),
            }
    anchors = {language: {"words": len(found)} for language, found in trainer.anchors.items()}
    return {"rows": rows, "anchors": anchors, "links": trainer.text["links"], "seconds": seconds}


def columns(settings: dict[str, Any]) -> dict[str, str]:
    """Scores to show, and the heads of their columns."""
    pooling = settings.get("pooling", "mean")
    shown = {f"retrieval_{pooling}": "retrieval", "bli_p@1": "P@1", "bli_p@5": "P@5"}
    for protocol in settings.get("protocol", ()):
        published = (f"retrieval_{pooling}", "bli_p@1", "bli_p@5")
        heads = zip(published, list(shown.values())[:3])
        shown |= {f"{metric}_to_pivot, {protocol}": f"{head} ({protocol})" for metric, head in heads}
    return shown


def table(encoders: dict[str, Any], shown: dict[str, str]) -> str:
    """The rows of all encoders as Markdown, in %: means over the languages, then each language."""
    languages = list(next(iter(next(iter(encoders.values()))["rows"].values()))["scores"])
    heads = [f"{code}, {label}" for code in ("mean", *languages) for label in shown.values()]
    lines = [f"| encoder | map, supervision | {' | '.join(heads)} |", f"| --- | --- {'| ---: ' * len(heads)}|"]
    for encoder, found in encoders.items():
        for name, row in found["rows"].items():
            scores = row["scores"]
            cells = [f"{100 * mean(scores[code][metric] for code in languages):.1f}" for metric in shown]
            cells += [f"{100 * scores[code][metric]:.1f}" for code in languages for metric in shown]
            lines.append(f"| {encoder} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def coverage(encoders: dict[str, Any]) -> str:
    """Coverage, both policies for words without an anchor, and intervals of P@1, of each language, as Markdown."""
    lines = [
        "| encoder | map, supervision | language | entries covered | P@1 to English | from English "
        "| as wrong, to English | from English |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for encoder, found in encoders.items():
        for name, row in found["rows"].items():
            for language, scores in row["scores"].items():
                cells = [f"{100 * scores['bli_coverage']:.1f}"]
                for policy in ("", "_oov_wrong"):
                    for end in ("_to_pivot", "_from_pivot"):
                        metric = f"bli_p@1{policy}{end}"
                        low, high = (100 * bound for bound in row["intervals"][language][metric])
                        cells.append(f"{100 * scores[metric]:.1f} ({low:.1f}-{high:.1f})")
                lines.append(f"| {encoder} | {name} | {language} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of text and dictionaries")
    parser.add_argument("--languages", nargs="+", default=["de", "bn", "es", "hi"])
    parser.add_argument("--encoders", nargs="+", choices=["raw", *RECIPES], default=["raw", *RECIPES])
    parser.add_argument("--models", type=Path, default=Path("runs/mapping_models"), help="where FAO and MAO lie")
    parser.add_argument("--max_train_pairs", type=int, default=2000, help="a language, of FAO, MAO and the maps")
    parser.add_argument("--max_eval_pairs", type=int, default=500)
    parser.add_argument("--max_words", type=int, default=8000, help="anchors a language")
    parser.add_argument("--sentences_per_word", type=int, default=5)
    parser.add_argument("--pooling", default="mean", choices=["first", "last", "mean"], help="subwords of a word")
    parser.add_argument("--protocol", nargs="+", default=[], help="protocols to score by in addition, such as mao")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--output", type=Path, default=Path("runs/mapping_table.json"))
    parser.add_argument("--show", type=Path, help="print the tables of this file and run nothing")
    arguments = parser.parse_args(argv)
    if not arguments.show and not (arguments.data and arguments.data.is_dir()):
        parser.error("--data: name the folder of text and dictionaries")
    return arguments


def main() -> None:
    """Run the benchmark and print its tables."""
    arguments = parse_arguments()
    done: dict[str, Any] = {"settings": None, "encoders": {}}
    if arguments.show:
        done = json.loads(arguments.show.read_text())
    else:
        folder, codes = arguments.data, arguments.languages
        pairs = {
            split: [f"{code}={folder / 'bitext' / f'{code}.{split}.jsonl'}" for code in codes]
            for split in ("train", "test")
        }
        limits = {"max_train_pairs": arguments.max_train_pairs, "max_eval_pairs": arguments.max_eval_pairs}
        settings = {
            **limits,
            "languages": codes,
            "max_words": arguments.max_words,
            "sentences_per_word": arguments.sentences_per_word,
            "pooling": arguments.pooling,
            "protocol": arguments.protocol,
        }
        if arguments.output.exists():
            done = json.loads(arguments.output.read_text())
            if done["settings"] != settings:
                sys.exit(f"{arguments.output} is of other settings ({done['settings']}): choose another --output")
        done["settings"] = settings
        args = MappingArguments(
            dictionary=[f"{code}={folder / 'dict' / f'en-{code}.train.txt'}" for code in codes],
            test_dictionary=[f"{code}={folder / 'dict' / f'en-{code}.test.txt'}" for code in codes],
            text=[
                f"{code}={file}" for code in (*codes, "en") for file in sorted(folder.glob(f"text/{code}.*.txt.gz"))
            ],
            max_words=arguments.max_words,
            sentences_per_word=arguments.sentences_per_word,
            pooling=arguments.pooling,
            batch_size=arguments.batch_size,
        )
        options = ["--train_data", *pairs["train"], "--eval_data", *pairs["test"]]
        options += [word for name, value in limits.items() for word in (f"--{name}", str(value))]
        options += ["--protocol", *arguments.protocol] if arguments.protocol else []
        for encoder in arguments.encoders:
            if encoder in done["encoders"]:
                continue
            name = train_encoder(encoder, arguments.models / encoder, options)
            texts = {"train_data": pairs["train"], "eval_data": pairs["test"]}
            data = DataArguments(model_name_or_path=name, protocol=arguments.protocol, **texts, **limits)
            done["encoders"][encoder] = run_encoder(data, args)
            write_text(arguments.output, json.dumps(done, ensure_ascii=False, indent=1) + "\n")
            print(f"{encoder}: {done['encoders'][encoder]['seconds']:.0f} s of passes", flush=True)
    rows = table(done["encoders"], columns(done["settings"]))
    print(f"\n{done['settings']}\n\n{rows}\n\n{coverage(done['encoders'])}")


if __name__ == "__main__":
    main()
