"""Pre-train on several languages, with or without a dictionary that aligns their word embeddings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel

from hf_xalign.data.arrow import count_languages
from hf_xalign.data.batches.masked import PretrainingCollator
from hf_xalign.data.derived.language import DerivedLanguage
from hf_xalign.data.encoding import first_position, position_limit
from hf_xalign.data.parallel import check_columns, check_dataset, is_by_language
from hf_xalign.data.pretraining.rows import ENTRIES_FILE, TokenEntries, encode_pretraining
from hf_xalign.errors import InputError
from hf_xalign.evaluation.embedding_alignment import alignment_of_model
from hf_xalign.evaluation.scores import Scores
from hf_xalign.language_codes import check_language
from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.modeling.freezing import disable_dropout, freeze_unused
from hf_xalign.modeling.languages import language_ids
from hf_xalign.modeling.mlm_head import mlm_head
from hf_xalign.modeling.word_vectors import evaluating
from hf_xalign.objectives.masked import MaskedTokens
from hf_xalign.objectives.term import Vectors
from hf_xalign.record import DERIVED_FILE, Record
from hf_xalign.score import Score
from hf_xalign.trainers.align_mlm_config import AlignMLMConfig
from hf_xalign.trainers.base.run import Run
from hf_xalign.trainers.base.trainer import AlignmentTrainer, Batch, Computed, Counts, Loss, Prepared


class AlignMLMTrainer(AlignmentTrainer):
    """Trainer of ALIGN-MLM, L = L_MLM + alpha L_ALIGN, and of MLM, XLM and DICT-MLM (ALIGN-MLM section 3).

    L_MLM is a mean over the masked tokens of the whole optimizer step and all processes. L_ALIGN is minus the mean
    cosine of the dictionary entries' input embeddings and counts once per step. Evaluation reports L_MLM with fixed
    masks, and the share of entries whose embeddings are nearest neighbours.

    Args: (the others are those of [`AlignmentTrainer`])
        model: the encoder, changed in place. Its MLM head is trained too, a new one if its checkpoint has none.
        train_dataset: text by language, datasets with a column `text` or `words`; or rows of
            [`~hf_xalign.data.pretraining.rows.encode_pretraining`].
        entries: dictionary for `dict_mlm` and `align_mlm`, saved with every checkpoint.
        derived: language that a part of the text was derived into, saved with every checkpoint.
        eval_dataset: held-out text, in either form.
        test_entries: by language, int64 (n, 2), token pairs whose alignment is evaluated.
        candidates: by language, int64 (m,), candidate tokens of that evaluation. Default: those of `test_entries`.

    Example:
        >>> from datasets import Dataset
        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> text = {"en": ["the cat sleeps"], "de": ["die katze ruht"]}
        >>> corpora = {language: Dataset.from_dict({"text": rows}) for language, rows in text.items()}
        >>> entries = TokenEntries(np.array([[5, 8], [6, 9]]), origin="the example")
        >>> args = AlignMLMConfig(max_steps=1, report_to="none", save_strategy="no")
        >>> given = {"train_dataset": corpora, "entries": entries, "processing_class": tiny.tokenizer}
        >>> trainer = AlignMLMTrainer(BertModel(tiny.config, add_pooling_layer=False), args, **given)
        >>> trainer.train().global_step
        {'loss': ...}
        1
    """

    _tag_names: ClassVar[list[str]] = ["hf_xalign", "align-mlm", "cross-lingual-alignment"]
    _paper = "tang2022alignmlm"
    config_class = AlignMLMConfig
    method = "align_mlm"
    scores_ends = False
    scores_nothing = True
    computes = ("masked", "entries")
    args: AlignMLMConfig

    def __init__(
        self,
        model: str | PreTrainedModel,
        args: AlignMLMConfig | None = None,
        *,
        entries: TokenEntries | None = None,
        derived: DerivedLanguage | None = None,
        test_entries: Mapping[str, np.ndarray] | None = None,
        candidates: Mapping[str, np.ndarray] | None = None,
        **kwargs: Any,
    ):
        self.entries, self.derived = entries, derived
        self.test_entries, self.candidates = test_entries or {}, candidates or {}
        super().__init__(model, args, **kwargs)
        self._entry_ids = None if entries is None else torch.from_numpy(entries.ids).to(self.args.device)

    def _prepare(self, model: PreTrainedModel, train_dataset: Dataset) -> Prepared:
        args, entries = self.args, self.entries
        train_dataset, self.eval_dataset = self._rows(train_dataset, model), self._rows(self.eval_dataset, model)
        if entries is None and (self.objective.reads("entries") or args.objective == "dict_mlm"):
            raise InputError(f"objective={args.objective} needs a dictionary: give entries=")
        if args.has_language_embeddings:
            known = cast(dict[str, int], language_ids(model.config))
            for dataset in filter(None, (train_dataset, self.eval_dataset)):
                if unknown := sorted({*"+".join(dataset.unique("source_lang")).split("+")} - {*known}):
                    raise InputError(
                        f"the encoder has language embeddings of {', '.join(known)}, but not of {', '.join(unknown)}. "
                        "Call hf_xalign.modeling.add_language_embeddings with all languages."
                    )
        if not args.dropout:
            disable_dropout(model)
        freeze_unused(model, model.config.num_hidden_layers)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(args.seed)
            heads = nn.ModuleDict({"words": mlm_head(model)})
        cast(nn.Module, model).add_module(HEAD_NAME, heads)
        collator = PretrainingCollator(
            self.processing_class,
            seed=args.seed if args.data_seed is None else args.data_seed,
            language_ids=language_ids(model.config) if args.has_language_embeddings else None,
            entries=entries if args.objective == "dict_mlm" else None,
            dict_mlm=args.dict_mlm,
            dict_probability=args.translation_probability,
            mlm_probability=args.mlm_probability,
            first_position=first_position(model.config),
        )
        return model, train_dataset, collator

    def _read(self, data: object, name: str) -> Dataset | Mapping[str, Dataset]:
        if is_by_language(data):
            parts = {check_language(language, f"a key of {name}"): part for language, part in data.items()}
            return {language: check_dataset(part, f"{name}[{language!r}]") for language, part in parts.items()}
        remedy = 'Give text by language, such as {"de": dataset}, or rows of encode_pretraining.'
        return check_columns(data, ["input_ids"], name, remedy)

    def _rows(self, text: Dataset | Mapping[str, Dataset], model: PreTrainedModel) -> Dataset:
        """Encode and pack text by language; rows are returned unchanged."""
        if not isinstance(text, Mapping):
            return text
        block_size = position_limit(model.config, 512)
        with self.args.main_process_first(desc="encoding text"):
            return encode_pretraining(text, self.processing_class, model.config, block_size=block_size)[0]

    # ---- Loss ----

    def compute_loss(
        self, model: nn.Module, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Counts = None
    ) -> Loss:
        """Return L = L_MLM + alpha L_ALIGN: the terms of masked tokens, and of the dictionary entries' embeddings."""
        computed, output = self._vectors(model, inputs)
        loss = self.total(Vectors(inputs, heads=self.head, **computed), num_items_in_batch)
        return (loss, output) if return_outputs else loss

    def _vectors(self, model: nn.Module, inputs: Batch) -> Computed:
        more_inputs = {name: inputs[name] for name in ("token_type_ids", "position_ids") if name in inputs}
        output = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], **more_inputs)
        embeddings = self.accelerator.unwrap_model(model).get_input_embeddings().weight
        computed = {"states": output.last_hidden_state, "embeddings": embeddings}
        if self.objective.reads("entries"):
            computed["entries"] = cast(torch.Tensor, self._entry_ids)
        return computed, output

    # ---- Scores and checkpoints ----

    def text_entries(self) -> Record:
        """Return languages and numbers of rows of the text; the pivot is the first language."""
        train, held_out = _entries_of(self.train_dataset), _entries_of(self.eval_dataset)
        # Rows of two languages, as of a pair, name both: "en+de".
        pivot, *languages = dict.fromkeys("+".join(str(entry["language"]) for entry in train).split("+"))
        return {"languages": languages, "pivot": pivot, "data": {"train": train, "eval": held_out}}

    def score_held_out(self, model: PreTrainedModel, when: str) -> Iterator[Scores]:
        """Score the alignment of `test_entries` by language, and keep the losses on held-out text in the record."""
        if self.eval_dataset is not None:
            record = cast(Run, self.run).record
            record.setdefault("losses", {})[when], _ = self.losses(self.eval_dataset)
        yield {language: {Score("embedding", "alignment").name: share} for language, share in self.alignment().items()}

    def _metrics(self, dataset: Dataset) -> dict[str, float]:
        """Return L_MLM per language and overall, its perplexity, and the mean alignment of `test_entries` if given."""
        losses, loss = self.losses(dataset)
        metrics = {f"{language}_loss": value for language, value in losses.items()}
        metrics |= {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}
        shares = list(self.alignment().values())
        return metrics | {"alignment": sum(shares) / len(shares)} if shares else metrics

    def alignment(self) -> dict[str, float]:
        """Return the share of each language's `test_entries` whose embeddings are nearest neighbours."""
        model = self.accelerator.unwrap_model(self.model)
        pivot = next(iter(language_ids(model.config) or {}), "")
        shares = {}
        for language, entries in self.test_entries.items():
            # The published code adds the language embeddings, where a model has them, before it compares.
            codes = (pivot, language) if self.args.alignment_languages else None
            shares[language] = alignment_of_model(model, entries, self.candidates.get(language), languages=codes).share
        return shares

    @torch.no_grad()
    def losses(self, dataset: Dataset) -> tuple[dict[str, float], float]:
        """Return L_MLM of each language, and of all languages; the same tokens are masked each time."""
        collator = cast(PretrainingCollator, self.data_collator).for_evaluation()
        model = self.accelerator.unwrap_model(self.model)
        rows: dict[str, list[int]] = defaultdict(list)
        for row, language in enumerate(dataset["source_lang"][:]):
            rows[language].append(row)
        sums: dict[str, float] = dict.fromkeys(rows, 0.0)
        counts: dict[str, int] = dict.fromkeys(rows, 0)
        size = self.args.per_device_eval_batch_size
        with evaluating(model):
            for language, indices in rows.items():
                for start in range(0, len(indices), size):
                    batch = collator([dataset[row] for row in indices[start : start + size]])
                    batch = cast(Batch, self._prepare_inputs(batch))
                    vectors = Vectors(batch, heads=self.head, **self._vectors(model, batch)[0])
                    with self.accelerator.autocast():
                        sums[language] += float(MaskedTokens()(vectors))
                    counts[language] += len(batch["mlm_labels"])
        loss = sum(sums.values()) / max(1, sum(counts.values()))
        return {language: sums[language] / max(1, counts[language]) for language in sums}, loss

    def save_files(self, folder: Path, state: dict[str, torch.Tensor] | None = None) -> None:
        """Save model, tokenizer, the dictionary and the derived language."""
        super().save_files(folder, state)
        if self.entries is not None:
            self.entries.save(folder)
        if self.derived is not None:
            self.derived.save(folder / DERIVED_FILE)

    def keep_held_out(self, folder: Path) -> dict[str, str]:
        """Return {description: file} of the derived language and the dictionary, which are saved with the model."""
        parts = {"derived language": (self.derived, DERIVED_FILE), "dictionary": (self.entries, ENTRIES_FILE)}
        return {name: str(folder / file) for name, (part, file) in parts.items() if part is not None}

    def load_model(self, checkpoint: str, model: PreTrainedModel) -> None:
        """Load the weights of a run with the same dictionary."""
        if self.entries is not None:
            saved = TokenEntries.load(checkpoint)
            if not np.array_equal(saved.ids, self.entries.ids):
                advice = "Give the same file, share and seed, or load the entries from that folder"
                raise InputError(f"{checkpoint} was trained with another dictionary. {advice}.")
        super().load_model(checkpoint, model)


def _entries_of(text: Dataset | None) -> list[dict[str, str | int]]:
    counts = {} if text is None else count_languages(text)
    return [{"source": "given in Python", "language": language, "rows": rows} for language, rows in counts.items()]
