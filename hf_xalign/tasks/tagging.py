"""Label words with a BiLSTM-CRF tagger on a frozen encoder (ROTATE section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from datasets import Dataset, Features, List, Value
from transformers import PreTrainedModel

from hf_xalign.data.span_labels import UNLABELLED
from hf_xalign.errors import InputError
from hf_xalign.modeling.loading import load
from hf_xalign.modeling.mapped import MappedEncoder
from hf_xalign.modeling.tagger import NO_TAG, BiLSTMCRFForTokenClassification
from hf_xalign.modeling.xalign.insertion import with_alignment
from hf_xalign.tasks.classification import TokenTask
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.models import adapter_alone, changed_layers, check_layers
from hf_xalign.tasks.task import Batch, Task


@dataclass(frozen=True)
class TaggingTask(TokenTask):
    """Label words with a tagger that reads word vectors and predicts the best label sequence (Viterbi).

    The encoder is frozen, so the vectors of the training text can be cached in the rows as `vectors`, in float32: 1.5
    KB for a word of 384 dimensions.

    Attributes:
        bio: allow `I-X` only after `B-X` or `I-X`.
        keep_vectors: cache the vectors of the training text; otherwise every epoch runs the encoder.
    """

    spans: ClassVar[bool] = True
    bio: bool = False
    keep_vectors: bool = True

    def encode(self, examples: Examples, *inputs: Any, training: bool, **options: Any) -> Dataset:
        """Encode sentences; an unknown label, or a word of the training text without a label, raises an InputError."""
        if training and any(UNLABELLED in names for names in examples.rows["labels"]):
            raise InputError(
                f"{examples.name}: some words have no label (_), but a tagger learns whole sentences. Remove the "
                "sentences with such words, or remove head=tagger."
            )
        return super().encode(examples, *inputs, training=training, **options)

    def collate(self, rows: Sequence[Mapping[str, Any]], pad_token_id: int) -> Batch:
        """Collate the N words that have a token, at most W in each of B rows.

        The batch holds the encoder's inputs and `word_spans` int64 (B, W, 2), or, for rows with `vectors`,
        `inputs_vectors` float32 (B, W, size) and `word_mask` bool (B, W). `labels` int64 (B, W) are -100 for padding
        and for words labelled `_`; `label_positions` int64 (N,) are the positions of the other words in the flattened
        labels, and `label_counts` int64 (B,) their number in each row.
        """
        starts = [np.asarray(row["first"], dtype=np.int64) for row in rows]
        # Words are truncated only at the end of a sentence.
        counts = [int((tokens >= 0).sum()) for tokens in starts]
        width = max(1, *counts)
        mask = torch.arange(width) < torch.tensor(counts)[:, None]
        labels = torch.full((len(rows), width), NO_TAG)
        spans = torch.zeros(len(rows), width, 2, dtype=torch.long)
        for number, (row, tokens, count) in enumerate(zip(rows, starts, counts, strict=True)):
            labels[number, :count] = torch.as_tensor(row["word_labels"][:count])
            spans[number, :count, 0] = torch.from_numpy(tokens[:count])
            spans[number, :count, 1] = torch.as_tensor(row["ends"][:count])
        batch = {
            "labels": labels,
            "label_positions": (labels >= 0).flatten().nonzero()[:, 0],
            "label_counts": (labels >= 0).sum(1),
        }
        if "vectors" not in rows[0]:
            return {**Task.collate(self, rows, pad_token_id), "word_spans": spans, **batch}
        size = max(len(row["vectors"]) // count for row, count in zip(rows, counts, strict=True) if count)
        vectors = torch.zeros(len(rows), width, size)
        for number, (row, count) in enumerate(zip(rows, counts, strict=True)):
            vectors[number, :count] = torch.tensor(row["vectors"]).view(count, size)
        return {"inputs_vectors": vectors, "word_mask": mask, **batch}

    def prepare(self, model: PreTrainedModel, encoded: Dataset, pad_token_id: int) -> Dataset:
        """Add the words' vectors, float32 (words * size,), to the training rows, if `keep_vectors`."""
        if not self.keep_vectors or "vectors" in encoded.column_names:
            return encoded
        tagger = cast(BiLSTMCRFForTokenClassification, model)
        device = next(tagger.parameters()).device

        def add(columns: dict[str, list]) -> dict[str, list]:
            batch = self.collate([dict(zip(columns, values)) for values in zip(*columns.values())], pad_token_id)
            inputs = {name: value.to(device) for name, value in self.inputs(batch).items()}
            vectors = tagger.word_vectors(**inputs).cpu()
            counts = batch["label_counts"].tolist()
            return {"vectors": [row[:count].flatten().numpy() for row, count in zip(vectors, counts, strict=True)]}

        # Sentences of similar length share a forward pass.
        order = np.argsort(np.asarray(encoded["length"][:]), kind="stable")
        with_vectors = encoded.select(order).map(
            add,
            batched=True,
            batch_size=64,
            features=Features({**encoded.features, "vectors": List(Value("float32"))}),
            load_from_cache_file=False,
            desc="Making word vectors",
        )
        # NumPy format, to read a row's vectors as an array and not as a Python list.
        return with_vectors.select(np.argsort(order)).with_format(
            "numpy", columns=["vectors"], output_all_columns=True, dtype=np.float32
        )

    def count_items(self, batch: Batch) -> int:
        """Count the words that have a token."""
        return len(batch["label_positions"])

    def training_inputs(self, batch: Batch) -> Batch:
        """Add the labels, because the model computes the likelihood of a sequence itself."""
        return {**self.inputs(batch), "labels": batch["labels"]}

    def loss(self, output: Any, batch: Batch) -> torch.Tensor:
        """Return the negative log-likelihood of the labels, summed over sentences."""
        return output.loss * self.count_items(batch)

    def predictions(self, output: Any, batch: Batch) -> list[np.ndarray]:
        """Return the label id of each word that has a token, from the best sequence."""
        return self._by_sentence(output.tags.flatten()[batch["label_positions"]], batch)


def load_tagger(
    name_or_path: str,
    task: TaggingTask,
    *,
    adapter: str | None = None,
    revision: str = "main",
    seed: int = 0,
    layers: Sequence[int] | None = None,
    **settings: Any,
) -> BiLSTMCRFForTokenClassification:
    """Load an encoder with a new tagger, in float32, from safetensors only.

    Args:
        name_or_path: folder or Hub id of an encoder or a mapped encoder, or `builtin` for the encoder that comes with
            the library.
        task: the task.
        adapter: folder or Hub id of a trained module to insert, frozen, between encoder and tagger.
        revision: branch, tag or commit of a Hub model.
        seed: seed of the tagger's initial weights.
        layers: layers that the tagger reads; if there are maps, all must be mapped. By default the mapped layers, the
            last layer with an adapter, else the last four.
        settings: other fields of [`~hf_xalign.modeling.tagger.BiLSTMCRFConfig`].

    Raises:
        InputError: the encoder is missing or has a task head, the adapter does not fit, or a setting is invalid.
    """
    encoder = load(name_or_path, revision=revision)
    if not isinstance(encoder, PreTrainedModel):
        raise adapter_alone(name_or_path)
    count = encoder.config.num_hidden_layers
    changed = changed_layers(encoder.config, name_or_path, adapter)
    if layers is None:
        if isinstance(encoder, MappedEncoder):
            layers = encoder.config.layers
        else:  # ROTATE reads the last four layers of an encoder without maps
            layers = [-1] if adapter is not None else [-4, -3, -2, -1][-count - 1 :]
    if changed is not None:
        check_layers(layers, count, changed, adapter or name_or_path)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        tagger = BiLSTMCRFForTokenClassification.from_encoder(
            encoder, task.labels.names, bio=task.bio, layers=list(layers), **settings
        )
    return tagger if adapter is None else with_alignment(tagger, adapter)  # type: ignore[return-value]
