"""What a training step of FAO costs, against the bare encoder and against two other ways to write it.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/fao_step.py                      # minutes on 2 cores
    OMP_WAIT_POLICY=PASSIVE python benchmarks/fao_step.py --steps 4 --repeats 1 --skip_memory     # a trial run
    python benchmarks/fao_step.py --device cuda --bf16 --steps 50

The settings are those of recipes/configs/fao_embedded.yaml, in float32 unless `--bf16`. No variant takes an optimizer
step, all start from the same slightly moved weights (at f = f0 the regulariser would be 0), and all but the bare
encoder must find the same loss on every batch, or the benchmark stops. A paired repeat runs every variant on one batch
of the trainer's own order, one after the other, shuffled; a ratio is taken within a repeat, and the median reported,
because other work on the machine then slows both sides of it. CPU time says more where there is such work.

- `bare`: forward and backward of the encoder on the batch's tokens, the floor;
- `copy`, `cache`: `FAOTrainer.training_step` with a frozen copy as reference, and with cached vectors;
- `loops`: the same objective and trained weights by three forwards, each padded to itself, and a loop over words;
- `copy all`: as `copy`, with the word embeddings trained too;
- `script`: as published scripts have it: every step tokenises word by word, all weights are trained, and the reference
  is in the graph, so that the backward pass runs through it. (Kinder than the scripts: the batches are those of the
  others, grouped by length.)

"prepare" is making the batch from the dataset's rows (reading, collating, reading the cache), and is no part of the
step. `script` has no such thing before its step, so the others' is added where they are compared with it.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from datasets import Dataset, disable_progress_bars
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data import align_words, load_sources
from hf_xalign.data.embedded import resolve_model
from hf_xalign.data.encoding import encode_pairs
from hf_xalign.data.sampling import PairSampler
from hf_xalign.modeling.checkpoint import load_encoder
from hf_xalign.modeling.freezing import disable_dropout, freeze
from hf_xalign.modeling.precision import cpu_has_bfloat16
from hf_xalign.modeling.reference import frozen_copy
from hf_xalign.trainers import FAOConfig, FAOTrainer

MAX_LENGTH = 128
MEMORY_STEPS = 2


@dataclass
class Setup:
    """What the variants share; each loads an encoder of its own."""

    load: Callable[[], PreTrainedModel]
    tokenizer: PreTrainedTokenizerBase
    linked: Dataset
    output_dir: str
    batch_size: int = 16
    device: str = "cpu"
    bf16: bool = False

    @cached_property
    def encoded(self) -> Dataset:
        """The linked pairs as token ids, row for row (`script` reads the words of the same rows)."""
        encoded = encode_pairs(self.linked, self.tokenizer, max_length=MAX_LENGTH)
        if len(encoded) != len(self.linked):
            raise RuntimeError(f"{len(self.linked) - len(encoded)} pairs lost every link in encoding")
        return encoded

    def batches(self) -> Iterator[list[int]]:
        """Row numbers of each batch, in the order of the trainer's data loader."""
        order = list(
            PairSampler(self.encoded["length"][:], self.encoded["source_lang"][:], step_pairs=self.batch_size)
        )
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size]

    def trainer(self, **settings: Any) -> FAOTrainer:
        """A trainer with the settings of fao_embedded.yaml."""
        options: dict[str, Any] = {
            "preset": "mao",
            "pooling": "mean",
            "dropout": False,
            "freeze_embeddings": True,
            "per_device_train_batch_size": self.batch_size,
            "max_length": MAX_LENGTH,
            "bf16": self.bf16,
            "use_cpu": self.device == "cpu",
            "seed": 0,
            "report_to": "none",
            "output_dir": self.output_dir,
        }
        return FAOTrainer(
            self.load(),
            FAOConfig(**{**options, **settings}),
            train_dataset=self.encoded,
            processing_class=self.tokenizer,
        )

    def autocast(self) -> torch.autocast:
        """The precision of the forward passes that are not the trainer's."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.bf16)


class Variant(NamedTuple):
    """One way to take a step.

    Attributes:
        model: the tuned encoder; its gradients are dropped before each step.
        prepare: row numbers to whatever `step` takes.
        step: forward, loss, backward; gives the loss.
    """

    model: PreTrainedModel
    prepare: Callable[[list[int]], Any]
    step: Callable[[Any], Tensor]


# ---- The variants ----


def bare(setup: Setup) -> Variant:
    """Forward and backward of the encoder alone."""
    trainer = setup.trainer(regularizer_weight=0.0)
    model = move(trainer.model).train()

    def step(batch: dict[str, Tensor]) -> Tensor:
        tokens = {name: batch[name].to(setup.device) for name in ("input_ids", "attention_mask")}
        with setup.autocast():
            loss = model(**tokens).last_hidden_state.float().square().mean()
        loss.backward()
        return loss.detach()

    return Variant(model, lambda rows: collate(trainer, rows), step)


def ours(setup: Setup, **settings: Any) -> Variant:
    """The trainer's own step."""
    trainer = setup.trainer(**settings)
    model = trainer.accelerator.prepare_model(move(trainer.model))

    def step(batch: dict[str, Tensor]) -> Tensor:
        counts = trainer._get_num_items_in_batch([batch], trainer.args.device)
        return trainer.training_step(model, batch, counts)

    return Variant(trainer.model, lambda rows: collate(trainer, rows), step)


def loops(setup: Setup) -> Variant:
    """Three forwards and a loop over words, on token ids that were made beforehand."""
    model = setup.load().to(torch.device(setup.device)).train()
    disable_dropout(model)
    freeze(model, embeddings=True)
    reference = frozen_copy(model)
    move(model)

    def prepare(rows: list[int]) -> tuple:
        pairs = setup.encoded.__getitems__(rows)
        sides = []
        for side in ("source", "target"):
            spans = [list(zip(p[f"{side}_starts"], p[f"{side}_ends"], strict=True)) for p in pairs]
            sides.append((*pad([p[f"{side}_ids"] for p in pairs], setup.tokenizer.pad_token_id), spans))
        return *sides, [p["links"] for p in pairs]

    def step(batch: tuple) -> Tensor:
        source, target, links = batch
        with setup.autocast():
            f_source, f_target = words_by_loop(model, source), words_by_loop(model, target)
            with torch.no_grad():
                f0 = words_by_loop(reference, target)
        loss = loop_loss(f_source, f_target, f0, links)
        loss.backward()
        return loss.detach()

    return Variant(model, prepare, step)


def script(setup: Setup) -> Variant:
    """As published scripts have it: tokenise in the step, train everything, leave the reference in the graph."""
    model = setup.load().to(torch.device(setup.device)).train()
    disable_dropout(model)
    reference = copy.deepcopy(model).eval()
    move(model)
    tokenizer: Any = setup.tokenizer
    first, last = tokenizer("").input_ids

    def tokenise(sentences: list[list[str]]) -> tuple:
        ids: list[list[int]] = []
        spans: list[list[tuple[int, int]]] = []
        for sentence in sentences:
            ids.append([first])
            spans.append([])
            for word in sentence:
                pieces = tokenizer.tokenize(word)
                # A lone word-boundary mark is no part of the word, else the loss would be another one.
                boundary = len(pieces) > 1 and pieces[0] == "▁"
                spans[-1].append((len(ids[-1]) + boundary, len(ids[-1]) + len(pieces)))
                ids[-1] += tokenizer.convert_tokens_to_ids(pieces)
            ids[-1].append(last)
        return *pad(ids, tokenizer.pad_token_id), spans

    def step(pairs: list[dict[str, Any]]) -> Tensor:
        source = tokenise([pair["source_words"] for pair in pairs])
        target = tokenise([pair["target_words"] for pair in pairs])
        with setup.autocast():
            f_source, f_target = words_by_loop(model, source), words_by_loop(model, target)
            f0 = words_by_loop(reference, target)
        loss = loop_loss(f_source, f_target, f0, [pair["links"] for pair in pairs])
        loss.backward()
        return loss.detach()

    return Variant(model, setup.linked.__getitems__, step)


VARIANTS: dict[str, Callable[[Setup], Variant]] = {
    "bare": bare,
    "copy": lambda setup: ours(setup, reference="copy"),
    "cache": lambda setup: ours(setup, reference="cache"),
    "loops": loops,
    "copy all": lambda setup: ours(setup, reference="copy", freeze_embeddings=False),
    "script": script,
}


def move(model: PreTrainedModel) -> PreTrainedModel:
    """Move the weights, except the word embeddings, by a hundredth of their size, the same in every variant."""
    generator = torch.Generator().manual_seed(1)
    embeddings = model.get_input_embeddings().weight
    with torch.no_grad():
        for weight in model.parameters():
            if weight is not embeddings:
                noise = torch.randn(weight.shape, generator=generator).to(weight)
                weight.add_(noise, alpha=0.01 * weight.square().mean().sqrt().item())
    return model


def collate(trainer: FAOTrainer, rows: list[int]) -> dict[str, Tensor]:
    """A batch, as the trainer's data loader makes it."""
    return trainer.data_collator(trainer.train_dataset.__getitems__(rows))


def pad(ids: list[list[int]], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """`input_ids` and `attention_mask`."""
    rows = [torch.tensor(row) for row in ids]
    masks = [torch.ones_like(row) for row in rows]
    sequences = torch.nn.utils.rnn.pad_sequence
    return sequences(rows, True, pad_token_id), sequences(masks, True, 0)


def words_by_loop(model: PreTrainedModel, side: tuple) -> list[list[Tensor | None]]:
    """The vector of every word of every sentence; None for a word without a subword."""
    input_ids, mask, spans = side
    device = next(model.parameters()).device
    hidden = model(input_ids=input_ids.to(device), attention_mask=mask.to(device)).last_hidden_state.float()
    return [
        [hidden[k, start:end].mean(0) if end > start else None for start, end in sentence]
        for k, sentence in enumerate(spans)
    ]


def loop_loss(source: list[list], target: list[list], f0: list[list], links: list[list]) -> Tensor:
    """MAO's objective, divided by the number of links."""
    pairs = [(source[k][i], target[k][j]) for k, row in enumerate(links) for i, j in row]
    pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
    kept = [(a, b) for now, before in zip(target, f0, strict=True) for a, b in zip(now, before, strict=True)]
    kept = [(a, b) for a, b in kept if a is not None]
    terms = [(torch.stack([a for a, _ in x]) - torch.stack([b for _, b in x])).square().sum() for x in (pairs, kept)]
    return (terms[0] + terms[1]) / len(pairs)


# ---- Time ----


class Timing(NamedTuple):
    """Seconds of one step of one variant."""

    prepare: float
    wall: float
    cpu: float
    loss: float


def timed(variant: Variant, rows: list[int], device: str = "cpu") -> Timing:
    """Prepare a batch and take one step; the device has finished when the clock stops."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    variant.model.zero_grad(set_to_none=True)
    start = time.perf_counter()
    batch = variant.prepare(rows)
    wait()
    prepared, cpu = time.perf_counter(), time.process_time()
    loss = variant.step(batch)
    wait()
    return Timing(prepared - start, time.perf_counter() - prepared, time.process_time() - cpu, loss.item())


def measure(
    variants: dict[str, Variant], batches: list[list[int]], repeats: int, device: str = "cpu", tolerance: float = 1e-4
) -> list[dict[str, Timing]]:
    """One dictionary a paired repeat, `repeats` of them for each batch.

    Raises:
        RuntimeError: a variant's loss differs from that of `copy` by more than `tolerance`, relative.
    """
    shuffle = random.Random(0).shuffle
    for variant in variants.values():
        timed(variant, batches[0], device)
    found = []
    for rows in batches * repeats:
        names = list(variants)
        shuffle(names)
        taken = {name: timed(variants[name], rows, device) for name in names}
        times = {name: taken[name] for name in variants}
        expected = times["copy"].loss
        for name, timing in times.items():
            if name != "bare" and abs(timing.loss - expected) > tolerance * abs(expected):
                raise RuntimeError(f"the loss of {name} is {timing.loss}, that of copy {expected}")
        found.append(times)
    return found


# ---- Memory ----


def peak_memory(setup: Setup, name: str, batches: list[list[int]]) -> int:
    """Peak bytes of this process (or its GPU memory) while one variant takes steps on the widest batches."""
    variant = VARIANTS[name](setup)
    widths = setup.encoded["length"][:]
    widest = sorted(batches, key=lambda rows: -max(widths[row] for row in rows))[:MEMORY_STEPS]
    if setup.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        # Weights are mapped from their file and become resident when read, in some variants by the rows in use only.
        for weight in variant.model.parameters():
            weight.detach().sum()
        Path("/proc/self/clear_refs").write_text("5")  # the peak of loading does not count
    for rows in widest:
        timed(variant, rows, setup.device)
    if setup.device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def peak_memory_apart(name: str) -> int:
    """[`peak_memory`] in a process of its own, with this one's options."""
    command = [sys.executable, __file__, *sys.argv[1:], "--memory_of", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.split()[-1])


# ---- Report ----

Repeat = dict[str, Timing]


def table(found: list[Repeat], memory: dict[str, int]) -> str:
    """Times, ratios and memory of each variant, as Markdown."""
    lines = [
        "| variant | prepare ms | step ms | x bare | x bare, CPU time | peak GiB |",
        "|---|---|---|---|---|---|",
    ]
    for name in found[0]:
        cells = [
            f"{1000 * median(t[name].prepare for t in found):.1f}",
            f"{1000 * median(t[name].wall for t in found):.1f}",
            f"{median(t[name].wall / t['bare'].wall for t in found):.2f}",
            f"{median(t[name].cpu / t['bare'].cpu for t in found):.2f}",
            f"{memory[name] / 2**30:.2f}" if name in memory else "-",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def aims(found: list[Repeat]) -> str:
    """Each comparison with its aim, by wall and by CPU time, as Markdown."""

    def with_batch(timing: Timing) -> tuple[float, float]:
        # Preparing is one thread's work, so its wall time is its CPU time.
        return timing.prepare + timing.wall, timing.prepare + timing.cpu

    def step_only(timing: Timing) -> tuple[float, float]:
        return timing.wall, timing.cpu

    comparisons: list[tuple[str, str, Callable[[Timing], tuple[float, float]], float | None, bool]] = [
        ("copy", "bare", step_only, 1.25, False),
        ("cache", "bare", step_only, 1.1, False),
        ("copy", "bare", with_batch, None, False),
        ("cache", "bare", with_batch, None, False),
        ("loops", "copy", step_only, 1.0, True),
        ("script", "copy", with_batch, 2.0, True),
        ("script", "cache", with_batch, None, True),
        ("script", "copy all", with_batch, None, True),
    ]
    lines = ["| time of | over | ratio | ratio, CPU time | aim | |", "|---|---|---|---|---|---|"]
    for upper, lower, part, aim, at_least in comparisons:
        wall, cpu = (median(part(t[upper])[clock] / part(t[lower])[clock] for t in found) for clock in (0, 1))
        what = "step" if part is step_only else "prepare + step"
        cells = [f"{upper}, {what}", lower, f"{wall:.2f}", f"{cpu:.2f}"]
        if aim is None:
            cells += ["", ""]
        else:
            met = wall >= aim if at_least else wall <= aim
            cells += [f"{'>=' if at_least else '<='} {aim:g}", "met" if met else "missed"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help="a Hub id, a folder, or `embedded`")
    parser.add_argument("--data", nargs="+", default=["embedded:de", "embedded:bn"], help="as a recipe's train_data")
    parser.add_argument("--steps", type=int, default=10, help="batches")
    parser.add_argument("--repeats", type=int, default=1, help="paired repeats on each batch")
    parser.add_argument("--batch_size", type=int, default=16, help="sentence pairs")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--bf16", action="store_true", help="autocast of every variant")
    parser.add_argument("--skip_memory", action="store_true", help="no peak memory (a process for each variant)")
    parser.add_argument("--memory_of", choices=tuple(VARIANTS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bf16 and arguments.device == "cpu" and not cpu_has_bfloat16():
        parser.error("--bf16: this CPU has no bfloat16 instructions")
    return arguments


def main() -> None:
    """Run the benchmark and print two tables."""
    arguments = parse_arguments()
    disable_progress_bars()
    path = resolve_model(arguments.model)
    with tempfile.TemporaryDirectory() as output_dir:
        setup = Setup(
            load=lambda: load_encoder(path),
            tokenizer=AutoTokenizer.from_pretrained(path),
            linked=align_words(load_sources(arguments.data)),
            output_dir=output_dir,
            batch_size=arguments.batch_size,
            device=arguments.device,
            bf16=arguments.bf16,
        )
        batches = list(islice(setup.batches(), arguments.steps))
        if arguments.memory_of:
            print(peak_memory(setup, arguments.memory_of, batches))
            return
        memory = {} if arguments.skip_memory else {name: peak_memory_apart(name) for name in VARIANTS}
        variants = {name: make(setup) for name, make in VARIANTS.items()}
        # bfloat16 keeps 8 bits of every product, and the variants pad differently.
        tolerance = 2e-2 if arguments.bf16 else 1e-4
        found = measure(variants, batches, arguments.repeats, arguments.device, tolerance)
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(
        f"{where}, torch {torch.__version__}, {'bfloat16 autocast' if arguments.bf16 else 'float32'}, "
        f"{arguments.batch_size} pairs a step, medians of {len(found)} paired repeats\n\n"
        f"{table(found, memory)}\n\n{aims(found)}"
    )


if __name__ == "__main__":
    main()
