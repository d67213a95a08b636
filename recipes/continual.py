r"""Fine-tune on a task in one language while linked words of others stay aligned with it (continual learning).

    accelerate launch recipes/continual.py --config recipes/configs/continual_slots_embedded.yaml \
        --model_name_or_path runs/fao_embedded --train_data en=train.jsonl --eval_data en=test.jsonl de=de.jsonl

L = L_task + alpha L_FAO: with the examples of the task come sentence pairs (`--pairs`), whose words are linked as by
`recipes/fao.py`. `--model_name_or_path` is as a rule an encoder that FAO aligned, and `--reference` the one before any
alignment, which pivot words stay near. All else, and what it leaves for `recipes/compare.py`, is as in
`recipes/finetune.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from hf_xalign.recipes.parts.common import run
from hf_xalign.recipes.parts.seeds import named, run_seeds
from hf_xalign.recipes.parts.task_data import TaskArguments

if TYPE_CHECKING:
    from datasets import Dataset

    from hf_xalign.tasks import Examples, Task
    from hf_xalign.trainers.continual import ContinualTrainer
    from hf_xalign.trainers.continual_config import ContinualConfig

_PAIRS = "Sentence pairs"


@dataclass
class ContinualArguments(TaskArguments):
    """The encoder, the task, and the sentence pairs that come with it."""

    pairs: list[str] = field(
        default_factory=lambda: ["embedded:de", "embedded:bn"],
        metadata={"help": "Sentence pairs, as train_data of recipes/fao.py; English is the target.", "group": _PAIRS},
    )
    pairs_split: str = field(default="train", metadata={"help": "Split of embedded and Hub pairs.", "group": _PAIRS})
    max_pairs: int | None = field(default=None, metadata={"help": "Use the first n of each source.", "group": _PAIRS})
    target_lang: str = field(default="en", metadata={"help": "The pivot, their target column.", "group": _PAIRS})
    aligner: str = field(default="fast_align", metadata={"help": "What links words; not encoder.", "group": _PAIRS})
    reference: str = field(
        default="embedded", metadata={"help": "f0: the encoder before any alignment.", "group": _PAIRS}
    )

    def extra_data(self) -> dict[str, list[dict[str, Any]]]:
        """The sentence pairs; the split is of embedded and Hub ones."""
        return {"pairs": [{"source": item, "split": self.pairs_split, "first": self.max_pairs} for item in self.pairs]}


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.trainers.continual_config import ContinualConfig

    run_seeds(argv, ContinualArguments, ContinualConfig, make_trainer, method="continual", description=__doc__)


def make_trainer(
    data: ContinualArguments, args: ContinualConfig, task: Task, train: Any, evaluation: dict[str, Examples] | None
) -> ContinualTrainer:
    """The trainer of one seed, `args.seed`, on a model of its own."""
    from transformers import AutoTokenizer, set_seed

    from hf_xalign.data.embedded.encoder import resolve_model
    from hf_xalign.errors import InputError
    from hf_xalign.modeling.checkpoint import load_encoder
    from hf_xalign.tasks import load_task_model
    from hf_xalign.trainers.continual import ContinualTrainer

    if data.adapter is not None:
        raise InputError("adapter: continual alignment trains the encoder itself, without a module on it")
    name, _ = named(data, args.seed)
    with args.main_process_first(desc="making the embedded encoder"):
        path, reference = resolve_model(name), resolve_model(data.reference)
    with args.main_process_first(desc="linking words"):
        pairs = _linked(tuple(data.pairs), data.pairs_split, data.max_pairs, data.target_lang, data.aligner)
    set_seed(args.seed)
    model = load_task_model(name, task, revision=data.model_revision, seed=args.seed)
    return ContinualTrainer(
        model,
        args,
        task=task,
        train_dataset=train,
        pairs=pairs,
        reference=load_encoder(reference),
        eval_dataset=evaluation,
        processing_class=AutoTokenizer.from_pretrained(path, revision=data.model_revision),
    )


@cache
def _linked(items: tuple[str, ...], split: str, max_pairs: int | None, target_lang: str, aligner: str) -> Dataset:
    """Word-linked pairs, once for all seeds."""
    from hf_xalign.data.parallel import load_sources
    from hf_xalign.links import align_words

    found = load_sources(items, target_lang=target_lang, split=split, max_pairs=max_pairs)
    return align_words(found, aligner)


if __name__ == "__main__":
    run(main, when_interrupted="the same command goes on after the last finished seed")
