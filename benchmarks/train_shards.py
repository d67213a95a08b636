"""Measure the memory of FAO on folders of linked Parquet shards of very different size, and whether a run resumes.

    python benchmarks/train_shards.py --text de=pairs.jsonl --eval_data de=held_out.jsonl [--pairs 10000 10000000]

The text's pairs of at most 7 words a side are linked once, and repeated with one of four words replaced. The encoder
is tiny and random. A folder is removed after its runs. Peak memory is that of the process that trains, as the system
counts it: own memory (RssAnon) and all of it (VmHWM), which adds mapped files. With `--kill`, a run is
killed (SIGKILL) at its checkpoint of that step and resumed, and its weights are compared with those of the first run.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.compute as pc
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from hf_xalign.data.arrow import shard_name, write_shard
from hf_xalign.data.load import load_parallel
from hf_xalign.data.sources import parse_source
from hf_xalign.links import align_words

ROOT = Path(__file__).resolve().parents[1]
LONGEST, CHUNK = 7, 100_000
STATUS = re.compile(r"^(RssAnon|VmHWM):\s+(\d+) kB", re.MULTILINE)


def write_folder(linked: pyarrow.Table, pairs: int, folder: Path) -> None:
    """Write shards of `pairs` pairs: random ones of a linked table, with one of four words replaced."""
    draw = np.random.default_rng(0)
    words = {side: linked[f"{side}_words"].combine_chunks().flatten() for side in ("source", "target")}
    for number, first in enumerate(range(0, pairs, CHUNK)):
        table = linked.take(pyarrow.array(draw.integers(len(linked), size=min(CHUNK, pairs - first))))
        for side, vocabulary in words.items():
            lists = table[f"{side}_words"].combine_chunks()
            kept = pyarrow.array(draw.random(len(lists.flatten())) < 0.75)
            other = vocabulary.take(pyarrow.array(draw.integers(len(vocabulary), size=len(kept))))
            lists = pyarrow.ListArray.from_arrays(lists.offsets, pc.if_else(kept, lists.flatten(), other))
            for name, column in ((f"{side}_words", lists), (side, pc.binary_join(lists, " "))):
                table = table.set_column(table.column_names.index(name), name, column)
        write_shard(folder / shard_name(number, -(-pairs // CHUNK)), [table.replace_schema_metadata()])


def write_encoder(text: list[str], folder: Path) -> None:
    """Write a tiny random encoder, and a tokenizer of the text."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(text, trainers.WordPieceTrainer(vocab_size=2000, special_tokens=special))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(tokenizer.get_vocab()), **shape)).save_pretrained(folder)


def train(command: list[str], output: Path, kill: int = 0) -> tuple[float, float, float]:
    """Run a recipe, or kill it when it has this checkpoint; return seconds and peaks of own and all memory (MiB)."""
    start, own, whole = time.perf_counter(), 0, 0
    variables = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with (output.parent / "log.txt").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=variables, cwd=ROOT)
        while process.poll() is None:
            try:
                found = dict(STATUS.findall(Path(f"/proc/{process.pid}/status").read_text()))
            except OSError:
                continue
            own, whole = max(own, int(found.get("RssAnon", 0))), max(whole, int(found.get("VmHWM", 0)))
            if kill and (output / f"checkpoint-{kill}" / "trainer_state.json").exists():
                process.kill()
            time.sleep(0.02)
    if process.returncode and not kill:
        raise SystemExit((output.parent / "log.txt").read_text()[-2000:])
    return time.perf_counter() - start, own / 1024, whole / 1024


def main() -> None:
    """Print a line for each folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, metavar="LANG=FILE")
    parser.add_argument("--eval_data", required=True, metavar="LANG=FILE")
    parser.add_argument("--pairs", type=int, nargs="+", default=[10_000, 10_000_000])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--kill", type=int, default=0, metavar="STEP")
    args = parser.parse_args()
    peaks: list[tuple[float, float]] = []
    for pairs in args.pairs:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            os.environ["HF_XALIGN_CACHE"] = str(folder / "cache")
            source, language = parse_source(args.text)
            linked = align_words(load_parallel(source, source_lang=language))
            short = pc.less_equal(pc.list_value_length(linked.data.table["source_words"]), LONGEST)
            other = pc.less_equal(pc.list_value_length(linked.data.table["target_words"]), LONGEST)
            table = linked.data.table.filter(pc.and_(short, other))
            write_folder(table, pairs, folder / "linked")
            write_encoder([*linked["source"], *linked["target"]], folder / "encoder")
            out = folder / "run"
            command = [sys.executable, "-m", "hf_xalign.recipes.fao", "--model_name_or_path", str(folder / "encoder")]
            command += ["--train_data", str(folder / "linked"), "--eval_data", args.eval_data]
            command += [
                "--max_eval_pairs",
                "200",
                "--max_steps",
                str(args.steps),
                "--per_device_train_batch_size",
                "32",
            ]
            command += ["--use_cpu", "true", "--report_to", "none", "--seed", "0"]
            saving = ["--save_strategy", "steps", "--save_steps", str(args.kill)] if args.kill else []
            saving = saving or ["--save_strategy", "no"]
            seconds, *peak = train([*command, *saving, "--output_dir", str(out)], out)
            peaks.append((peak[0], peak[1]))
            print(f"{pairs:,} pairs: {seconds:.0f} s, own {peak[0]:,.0f} MiB, all {peak[1]:,.0f} MiB", flush=True)
            if args.kill:
                again = folder / "again"
                train([*command, *saving, "--output_dir", str(again)], again, args.kill)
                train([*command, *saving, "--output_dir", str(again), "--resume_from_checkpoint", "true"], again)
                same = (out / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()
                print(f"  killed at step {args.kill} and resumed: same weights: {same}", flush=True)
    own, whole = np.subtract(peaks[-1], peaks[0])
    print(f"last - first: own {own:+,.0f} MiB, all {whole:+,.0f} MiB")


if __name__ == "__main__":
    main()
