"""Command-line arguments of the recipes that fine-tune on a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hf_xalign.checks import excludes, needs
from hf_xalign.data.sources import check_files, check_models
from hf_xalign.errors import InputError
from hf_xalign.pretrained import adapter_base
from hf_xalign.recipes.parts.arguments import PairColumns, option
from hf_xalign.recipes.parts.pretraining_arguments import DERIVED_FILE

if TYPE_CHECKING:
    from hf_xalign.trainers import TaskConfig

_DATA, _RUN, _PAIRS = "Model and data", "Run", "Sentence pairs"
_LABELLED = excludes("questions have a format and a metric of their own", task="questions")


@dataclass
class TaskArguments:
    """Encoder, task and labelled text."""

    task: str = option(
        _DATA,
        "token: a label for each word; sequence: one for a text or a pair of texts; questions: extractive questions "
        "(SQuAD); module:Class: a task of your own.",
        "token",
        rules=[excludes("a tagger labels words", ("sequence", "questions"), head="tagger")],
    )
    model_name_or_path: str = option(
        _DATA, "Encoder: a Hub id, a folder, or `builtin` (no network needed); {seed} is the run's seed.", "builtin"
    )
    model_revision: str = option(_DATA, "Branch, tag or commit of a Hub model.", "main")
    adapter: str | None = option(
        _DATA, "Folder of a frozen module between encoder and head: MAO or a rotation; {seed} is the run's seed.", None
    )
    train_data: list[str] = option(
        _DATA,
        "Labelled text, one or several: LANG=FILE (JSON, JSONL, TSV, CSV, CoNLL, CoNLL-U) or LANG=HUB_ID[:CONFIG].",
        [],
    )
    eval_data: list[str] = option(
        _DATA,
        "Text to score, one source for each language. LANG+LANG=SOURCE,SOURCE: questions in the first language about "
        "contexts in the second, or pairs of texts with one text, drawn at random, in the second.",
        [],
    )
    select_on: list[str] = option(
        _DATA,
        "Validation text that selects the checkpoint, instead of eval_data and in its form (load_best_model_at_end). "
        "The field selection names the language.",
        [],
        rules=[
            needs("no checkpoint is chosen without it, eval_strategy and save_strategy", load_best_model_at_end=True)
        ],
    )
    code_switch: str | None = option(
        _DATA,
        "English original of translated training text, LANG=SOURCE: each example becomes two in one batch, with one "
        "of its texts in English (PPA). Batch sizes count the original examples.",
        None,
    )
    derived_language: str | None = option(
        _DATA,
        "Folder of hf-xalign train align_mlm: text named by the code of its derived language (en-x-inv-trans=FILE) is "
        "natural text, and derived when it is read.",
        None,
    )
    train_split: str = option(_DATA, "Split of Hub training data.", "train")
    eval_split: str = option(_DATA, "Split of Hub evaluation data.", "test")
    select_split: str = option(_DATA, "Split of Hub data in select_on.", "validation")
    dataset_revision: str | None = option(_DATA, "Branch, tag or commit of Hub datasets.", None)
    text_columns: list[str] = option(
        _DATA,
        "Column of words (default tokens), or one or two of texts (default text_a and text_b, else text). Known "
        "data sets need none.",
        [],
        rules=[_LABELLED],
    )
    label_column: str | None = option(
        _DATA,
        "Default: labels of words, else upos (CoNLL-U); label of texts. CoNLL's columns have numbers.",
        None,
        rules=[_LABELLED],
    )
    label_names: list[str] = option(
        _DATA,
        "Names of labels that are numbers, from 0 on. Hub datasets with class labels need none.",
        [],
        rules=[_LABELLED],
    )
    labels: list[str] = option(
        _DATA, "All labels, FILE.json; or labels in addition to those of the training text.", [], rules=[_LABELLED]
    )
    metric: Literal["accuracy", "token_f1", "span_f1"] | None = option(
        _DATA,
        "Headline score. Default: span_f1 of labels of spans (BIO, BIOES, ...), accuracy of others. With span_f1 of "
        "others, neighbours with one label are a span, as seqeval scores parts of speech.",
        None,
        rules=[_LABELLED, excludes("texts are scored by accuracy", ("token_f1", "span_f1"), task="sequence")],
    )
    max_question_tokens: int = option(_DATA, "questions: longer questions are truncated.", 64)
    overlap: int = option(_DATA, "questions: tokens that consecutive windows of a text share.", 128)
    max_train_examples: int | None = option(_DATA, "Use the first n examples of each training source.", None)
    max_eval_examples: int | None = option(_DATA, "Use the first n examples of each evaluation source.", None)
    seeds: list[int] = option(_RUN, "Seeds, one run each. Default: seed alone.", [], least=0, distinct=True)
    save_models: bool = option(_RUN, "Keep each seed's model and checkpoints, not only scores.", False)
    dry_run: bool = option(_RUN, "Show text, labels and an estimate of the time; train nothing.", False)

    def check_files(self) -> None:
        """Refuse files and folders that are not there."""
        check_models([self.model_name_or_path])
        check_models([self.adapter], whole=False)
        check_files(filter(None, [self.derived_language and f"{self.derived_language}/{DERIVED_FILE}"]))
        check_files([*self.train_data, *self.eval_data, *self.select_on, *filter(None, [self.code_switch])])

    def check(self, args: TaskConfig) -> None:
        """Refuse encoders, adapters and heads that do not go together, before any text is read."""
        from hf_xalign.tasks.models import check_parts

        for seed in self.seeds or [args.seed]:
            check_parts(*self.named(seed), tagger=args.head == "tagger", layers=getattr(self, "tagger_layers", None))

    def named(self, seed: int) -> tuple[str, str | None]:
        """Return the encoder and the adapter of a seed; an adapter's folder in the encoder's place names its own."""
        model = self.model_name_or_path.replace("{seed}", str(seed))
        adapter = self.adapter and self.adapter.replace("{seed}", str(seed))
        if adapter is None and (base := adapter_base(model)):
            return base, model
        return model, adapter


@dataclass
class FinetuneArguments(TaskArguments):
    """Encoder, task, and size of the tagger."""

    tagger_layers: list[int] | None = option(
        "Tagger",
        "Encoder layers to read. Default: those with maps or a module, else the last four.",
        None,
        rules=[needs(head="tagger")],
    )
    tagger_lstm_size: int = option(
        "Tagger", "Units per direction of the BiLSTM; 384 in ROTATE.", 384, rules=[needs(head="tagger")]
    )


@dataclass
class ContinualArguments(TaskArguments, PairColumns):
    """Encoder, task, and sentence pairs that keep the languages aligned."""

    pairs: list[str] = option(_PAIRS, "Sentence pairs, as in hf-xalign train fao.", ["builtin:de", "builtin:bn"])
    pairs_split: str = option(_PAIRS, "Split of built-in and Hub pairs.", "train")
    max_pairs: int | None = option(_PAIRS, "Use n linked pairs of each source, selected by draw.", None, least=1)
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
        check_files(self.pairs)
