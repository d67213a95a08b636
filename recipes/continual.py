r"""Fine-tune on a task in one language while other languages stay aligned with it (continual learning).

    hf-xalign train continual --config continual_slots_builtin \
        --model_name_or_path runs/fao_builtin --train_data en=train.jsonl --eval_data en=test.jsonl de=de.jsonl

L = L_task + alpha L_FAO: each step adds sentence pairs (`--pairs`) to the examples of the task; their words are linked
as in `hf-xalign train fao`. `--model_name_or_path` is usually an encoder that FAO aligned. `--reference` is the
encoder before any alignment, which pivot words stay close to. Everything else works as in `hf-xalign train finetune`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from hf_xalign.config import CommandLine, parse
from hf_xalign.data.sources import check_files, check_models
from hf_xalign.errors import InputError
from hf_xalign.recipes.parts.arguments import PairColumns, option
from hf_xalign.recipes.parts.command import run
from hf_xalign.recipes.parts.task_arguments import TaskArguments

if TYPE_CHECKING:
    from hf_xalign.recipes.parts.task_data import TaskData
    from hf_xalign.trainers import ContinualConfig, ContinualTrainer, TaskConfig

_PAIRS = "Sentence pairs"


@dataclass
class ContinualArguments(TaskArguments, PairColumns):
    """Encoder, task, and sentence pairs that keep the languages aligned."""

    pairs: list[str] = option(_PAIRS, "Sentence pairs, as in hf-xalign train fao.", ["builtin:de", "builtin:bn"])
    pairs_split: str = option(_PAIRS, "Split of built-in and Hub pairs.", "train")
    max_pairs: int | None = option(_PAIRS, "Use n linked pairs of each source, selected by draw.", None, least=1)
    on_empty: Literal["error", "drop"] = option(_PAIRS, "What to do with a pair that has an empty side.", "error")
    aligner: str = option(_PAIRS, "Word aligner; any but encoder.", "fast_align")
    reference: str = option(_PAIRS, "f0: the encoder before any alignment.", "builtin")

    def check(self, args: TaskConfig) -> None:
        """Raise InputError for a module on the encoder."""
        if self.adapter is not None:
            raise InputError("adapter: continual alignment trains the encoder itself. Remove the adapter.")
        super().check(args)

    def check_files(self) -> None:
        """Refuse files and folders that are not there."""
        super().check_files()
        check_models([self.reference], whole=False)
        self.check_pivot(pairs=self.pairs)
        check_files(self.pairs)

    def extra_data(self, args: ContinualConfig) -> dict[str, list[dict[str, Any]]]:
        """Return the sentence pairs for the record."""
        from hf_xalign.data.load import source_entry

        drawn = {} if self.max_pairs is None else {"drawn": self.max_pairs, "draw": args.draw}
        return {"pairs": [source_entry(item, split=self.pairs_split, **drawn) for item in self.pairs]}

    def aligned(self, args: ContinualConfig) -> tuple[Any, Any]:
        """Return the word-linked pairs of one seed, `args.seed`, and the encoder before alignment."""
        from hf_xalign.data.builtin import resolve_model
        from hf_xalign.data.corpus import draw_pairs
        from hf_xalign.links.align import has_links
        from hf_xalign.modeling.checkpoint import load_encoder

        with args.main_process_first(desc="making the built-in encoder"):
            reference = resolve_model(self.reference)
        with args.main_process_first(desc="linking words"):
            options = tuple((self.columns() | {"split": self.pairs_split, "on_empty": self.on_empty}).items())
            pairs, entries = _linked(tuple(self.pairs), options, self.aligner, args.drop_identical)
            drawn = [{**entry} for entry in entries]  # each seed draws anew
            pairs = draw_pairs(pairs, has_links(pairs), drawn, self.max_pairs, args.seed, args.draw)
        return pairs, load_encoder(reference)


ARGUMENTS = (ContinualArguments, "hf_xalign.trainers.continual_config:ContinualConfig")


def main(argv: CommandLine | list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    data, args = parse(ARGUMENTS, argv, description=__doc__)

    from hf_xalign.recipes.parts.run import estimate, load_text, prepare, train_seeds
    from hf_xalign.recipes.parts.task_data import load_task
    from hf_xalign.trainers import ContinualTrainer

    checkpoint = prepare(data, args)
    text = load_text(load_task, data, args, checkpoint)

    def make_trainer(args: Any, text: TaskData) -> ContinualTrainer:
        encoder, module = data.named(args.seed)
        pairs, reference = data.aligned(args)
        model, tokenizer = text.model(args)
        return ContinualTrainer(
            model,
            args,
            task=text.task,
            train_dataset=text.train_rows(args.seed),  # labelled text of one language
            pairs=pairs,  # word-linked
            reference=reference,  # f0, the encoder before any alignment
            eval_dataset=text.selection or text.evaluation,  # on which a checkpoint may be chosen
            held_out=text.evaluation,
            processing_class=tokenizer,
            module=module,
            name=encoder,
            reporting=text.reporting(data),
        )

    def train(args: Any, checkpoint: bool | str | None) -> ContinualTrainer:
        trainer = make_trainer(args, text)
        trainer.train(resume_from_checkpoint=checkpoint or False)
        if data.save_models:
            trainer.save_model()
        return trainer

    if data.dry_run:
        estimate(make_trainer, text, args)
    else:
        train_seeds(train, text, ContinualTrainer.headline(args), data, args)


@cache
def _linked(
    items: tuple[str, ...], options: tuple[tuple[str, Any], ...], aligner: str, drop_identical: bool
) -> tuple[Any, list[dict[str, Any]]]:
    """Return all pairs, word-linked, and the entry of each source; computed once for all seeds."""
    from hf_xalign.data.load import load_parallel, sources
    from hf_xalign.links import align_words

    pairs = load_parallel([*items], **dict(options))
    return align_words(pairs, aligner, drop_identical=drop_identical, keep_unlinked=True), sources(pairs)


if __name__ == "__main__":
    run(main)
