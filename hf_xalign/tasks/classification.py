"""Classification tasks: label each word, also by a tagger, or a text or pair of texts."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset, Features, List, Value
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ModelOutput

from hf_xalign.checks import check_range
from hf_xalign.data.encoding import EncodedWords, check_vocabulary, special_frame, tokenize_words, word_tokenizer
from hf_xalign.data.readers.files import Record
from hf_xalign.data.span_labels import OUTSIDE, UNLABELLED
from hf_xalign.errors import InputError, explained
from hf_xalign.modeling.tagger import NO_TAG, BiLSTMCRFForTokenClassification
from hf_xalign.tasks.examples import Examples, read_examples
from hf_xalign.tasks.labels import LabelSet
from hf_xalign.tasks.scoring import Metric, count_classes, count_spans, count_words, tags_as_spans
from hf_xalign.tasks.task import Batch, LanguageInputs, Task, TaskScores

logger = logging.getLogger(__name__)


class LabelledTask(Task):
    """Base of tasks whose loss is the cross entropy of labelled items.

    Attributes:
        cut_off: what truncation did, for a message.
        labels: the labels.
    """

    cut_off: ClassVar[str]
    labels: LabelSet

    @classmethod
    def read(cls, item: str, options: Any, **source: Any) -> Examples:
        """Read labelled text as [`~hf_xalign.tasks.read_examples`] does."""
        return read_examples(
            item,
            "token" if cls.columns == ("tokens",) else "sequence",
            text_columns=options.text_columns,
            label_column=options.label_column,
            label_names=options.label_names,
            **source,
        )

    @classmethod
    def make(cls, options: Any, train: Sequence[Examples], scored: Sequence[Examples]) -> Self:
        """Make the task with the labels of a file, or those of the training text and of `options.labels`.

        Raises:
            InputError: a label of the text is not among them.
        """
        if len(options.labels) == 1 and ".json" in options.labels[0]:
            labels = LabelSet.load(options.labels[0])
        else:
            found = set[str]().union(*(part.label_names for part in train))
            # As of STS, where each value would become a class. Classes may be written as 1.0.
            if scores := sorted(filter(re.compile(r"\d+\.0*[1-9]\d*").fullmatch, found - {*options.labels})):
                raise InputError(f"{train[0].name}: the label {scores[0]!r} is a score. Write one class a text.")
            labels = LabelSet.of({*options.labels} | found)
        task = cls._of(labels, options)
        for part in (*train, *scored):
            part.check_labels(labels, options.labels[0] if options.labels else "the training text")
        return task

    @classmethod
    def _of(cls, labels: LabelSet, options: Any) -> Self:
        return cls(labels)  # type: ignore[call-arg]  # subclasses are dataclasses

    def config(self) -> dict[str, Any]:
        """Return the names and ids of the labels."""
        return self.labels.config()

    def count_items(self, batch: Batch) -> int:
        """Count the labels."""
        return len(batch["labels"])

    def loss(self, output: ModelOutput, batch: Batch) -> torch.Tensor:
        """Return the sum of the cross entropies."""
        return F.cross_entropy(self.select(output["logits"], batch).float(), batch["labels"], reduction="sum")

    def select(self, states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Select the states of the labelled items, (items, any size), from the states of a layer of the head."""
        raise NotImplementedError

    def encode(
        self,
        examples: Examples,
        tokenizer: PreTrainedTokenizerBase,
        languages: LanguageInputs,
        *,
        max_length: int,
        training: bool,
    ) -> Dataset:
        """Encode examples; rows also have the columns of [`LanguageInputs.columns`]."""
        examples.check_labels(self.labels, "the training text")
        with explained("special tokens surround every text"):
            check_range(above=sum(map(len, special_frame(tokenizer))), max_length=max_length)
        inputs = languages.columns(examples.language)
        if inputs and examples.group_size > 1:
            raise InputError(f"{examples.name}: examples mix two languages, but this model needs one for each example")
        for column in self.columns:
            if column in examples.rows.column_names:
                check_vocabulary(tokenizer, examples.rows[column], examples.language, examples.name)
        constants = {"source_lang": examples.language, **inputs}
        limit, cut = min(max_length, tokenizer.model_max_length), 0
        dropped: list[str] = []
        encoder = word_tokenizer(tokenizer) if "tokens" in examples.rows.column_names else tokenizer
        segments = languages.segments and "token_type_ids" in tokenizer.model_input_names

        def encode(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
            nonlocal cut
            columns, lost, unknown = self._columns(batch, encoder, limit, segments)
            cut += lost
            dropped.extend(f"word {word + 1} of {examples.place(rows[row])}" for row, word in unknown)
            repeated = {name: [value] * len(rows) for name, value in constants.items()}
            return {**columns, "length": list(map(len, columns["input_ids"])), **repeated}

        # Not cached, because the fingerprint does not depend on the tokenizer's state.
        encoded = examples.rows.map(
            encode,
            batched=True,
            with_indices=True,
            remove_columns=examples.rows.column_names,
            load_from_cache_file=False,
            desc="Encoding examples",
        )
        if dropped:
            unknown = f"{len(dropped)} words are encoded as the unknown token, because the tokenizer drops them"
            logger.warning("%s: %s, such as %s", examples.name, unknown, dropped[0])
        if cut:
            unit = self.cut_off if training else self.cut_off.replace("ignored", "counted as wrong")
            logger.warning("%s: %d %s by max_length=%d tokens", examples.name, cut, unit, max_length)
        return encoded

    def _columns(
        self, batch: dict[str, list], tokenizer: PreTrainedTokenizerBase, limit: int, segments: bool
    ) -> tuple[dict[str, list], int, list[tuple[int, int]]]:
        """Return the columns of a batch of examples, the number of truncated items, and the unknown words.

        Those are (example, word) of words that `tokenizer`, a [`word_tokenizer`] for lists of words, drops.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class TokenTask(LabelledTask):
    """Label each word on its first subword: parts of speech, names, slots.

    Truncated words are ignored in training and count as wrong in every score. Words labelled `_` are neither trained
    on nor scored. Words that the tokenizer drops, such as control characters in WikiANN, are encoded as the unknown
    token, as in XTREME. Encoded rows have `first`, the position of each word's first subword, -1 for a truncated word;
    `ends` (taggers only), the position after its last subword, 0 for a truncated word; and `word_labels`, the id of
    each word's label, -100 for `_`.

    Attributes:
        labels: the labels.
        metric: headline score; by default `span_f1` for BIO labels, else `accuracy`. For tags without prefixes,
            `span_f1` counts runs of equal tags as spans, see [`~hf_xalign.tasks.scoring.tags_as_spans`].

    Example:
        >>> TokenTask(LabelSet.of(["O", "B-city", "I-city"])).metric
        'span_f1'
        >>> TokenTask(LabelSet.of(["NOUN", "VERB"])).metric
        'accuracy'
    """

    kind: ClassVar[str] = "token"
    head: ClassVar[str] = "ForTokenClassification"
    columns: ClassVar[tuple[str, ...]] = ("tokens",)
    pipeline: ClassVar[str] = "token-classification"
    title: ClassVar[str] = "labelling words"
    metrics: ClassVar[Mapping[str, str]] = {
        "accuracy": "the share of words with the right label",
        "span_f1": "the F1 of whole spans, of which both ends and the kind must be right",
        "token_f1": "the micro F1 of words that have a label other than O",
    }
    example_inputs: ClassVar[str] = (
        'words = ["a", "short", "sentence"]\ntokens = tokenizer(words, is_split_into_words=True, return_tensors="pt")'
    )
    example_result: ClassVar[str] = """\
found = model(**tokens).logits[0].argmax(-1).tolist()
# A word's label is on its first subword.
first = [tokens.word_ids().index(number) for number in range(len(words))]
labels = [model.config.id2label[found[place]] for place in first]"""
    cut_off: ClassVar[str] = "words cut off (ignored)"
    spans: ClassVar[bool] = False  # whether rows need the end of each word
    labels: LabelSet
    metric: Metric = cast(Metric, None)

    @classmethod
    def _of(cls, labels: LabelSet, options: Any) -> Self:
        return cls(labels, options.metric)

    def __post_init__(self) -> None:
        if self.metric is None:
            object.__setattr__(self, "metric", "span_f1" if self.labels.mark_spans else "accuracy")
            if OUTSIDE in self.labels.names and not self.labels.mark_spans:
                logger.warning("the score counts words labelled O too. If runs of a label are spans: --metric span_f1")
        marked = any(name[1:2] == "-" for name in self.labels.names)
        if self.metric == "span_f1" and marked and not self.labels.mark_spans:
            raise InputError(f"metric=span_f1 needs BIO labels, or tags without prefixes: {self.labels.describe()}")

    def _columns(
        self, batch: dict[str, list], tokenizer: PreTrainedTokenizerBase, limit: int, segments: bool
    ) -> tuple[dict[str, list], int, list[tuple[int, int]]]:
        sentences = batch["tokens"]
        encoded = tokenize_words(tokenizer, sentences, limit)
        empty = _empty_words(encoded, limit)
        if empty:
            sentences = list(map(list, sentences))
            for row, word in empty:
                sentences[row][word] = str(tokenizer.unk_token)
            encoded = tokenize_words(tokenizer, sentences, limit)
        ids = self.labels.ids | {UNLABELLED: NO_TAG}
        columns: dict[str, list] = {
            "input_ids": encoded.input_ids,
            "first": [np.where(span[:, 1] > 0, span[:, 0], -1) for span in encoded.spans],
            "word_labels": [list(map(ids.__getitem__, names)) for names in batch["labels"]],
        }
        if self.spans:
            columns["ends"] = [span[:, 1] for span in encoded.spans]
        return columns, sum(int((span[:, 1] == 0).sum()) for span in encoded.spans), empty

    def collate(self, rows: Sequence[Record], pad_token_id: int) -> Batch:
        """Add the labels of the N words that have a label and a token.

        `labels` int64 (N,); `label_positions` int64 (N,), the position of each first subword in the flattened batch;
        `label_counts` int64 (B,), the number of these words in each row.
        """
        batch = super().collate(rows, pad_token_id)
        labels, positions = [], []
        for number, row in enumerate(rows):
            tokens, ids = np.asarray(row["first"], dtype=np.int64), np.asarray(row["word_labels"], dtype=np.int64)
            labelled = (tokens >= 0) & (ids >= 0)
            labels.append(ids[labelled])
            positions.append(number * batch["input_ids"].shape[1] + tokens[labelled])
        return {
            **batch,
            "labels": torch.from_numpy(np.concatenate(labels)),
            "label_positions": torch.from_numpy(np.concatenate(positions)),
            "label_counts": torch.tensor(list(map(len, labels))),
        }

    def select(self, states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Select the states of first subwords, (N, any size), from those of all tokens, (B, width, any size)."""
        return states.flatten(0, 1)[batch["label_positions"]]

    def predictions(self, output: ModelOutput, batch: Batch) -> list[np.ndarray]:
        """Return the label id of each word that has a label and a token, in order."""
        return self._by_sentence(self.select(output["logits"], batch).argmax(-1), batch)

    def _by_sentence(self, label_ids: torch.Tensor, batch: Batch) -> list[np.ndarray]:
        return np.split(label_ids.cpu().numpy(), np.cumsum(batch["label_counts"].cpu().numpy())[:-1])

    def score(self, examples: Examples, encoded: Dataset, predictions: Sequence[np.ndarray]) -> TaskScores:
        """Return `accuracy`, `token_f1`, `span_f1`, and the number of words and of truncated words."""
        gold = examples.rows["labels"][:]
        predicted: list[list[str | None]] = []
        words: list[str | None] = []  # those with a label
        for references, tokens, label_ids in zip(gold, encoded["first"], predictions, strict=True):
            names = (self.labels.names[label_id] for label_id in label_ids)
            predicted.append([])
            for token, label in zip(tokens, references, strict=True):
                has_label = label != UNLABELLED
                predicted[-1].append(next(names) if has_label and token >= 0 else None)
                words += predicted[-1][-1:] if has_label else []
        scores = {"accuracy": count_words(predicted, gold, outside=None)}
        if self.labels.mark_spans:
            # A word without a prediction cannot be part of a predicted span.
            filled = [[OUTSIDE if label is None else label for label in labels] for labels in predicted]
            scores["span_f1"] = count_spans(filled, gold)
        # Tags without prefixes mark no spans, unless the headline score takes runs of equal tags for them.
        elif self.metric == "span_f1":
            scores["span_f1"] = count_spans(list(map(tags_as_spans, predicted)), list(map(tags_as_spans, gold)))
        scores["token_f1"] = count_words(predicted, gold)
        counts = {"words": len(words), "lost_words": words.count(None)}
        return TaskScores(scores, counts, _only_label(words, examples.label_names))


def _only_label(predicted: Sequence[str | None], gold: set[str]) -> str | None:
    """Return the label that every item got although the text has others, or None."""
    found = {label for label in predicted if label is not None}
    return found.pop() if len(found) == 1 and len(gold) > 1 else None


def _empty_words(encoded: EncodedWords, limit: int) -> list[tuple[int, int]]:
    """Return (sentence, word) of the words that have no subword although they were not truncated."""
    empty = []
    for row, (ids, spans) in enumerate(zip(encoded.input_ids, encoded.spans, strict=True)):
        with_tokens = np.flatnonzero(spans[:, 1])
        # In a sentence of full length, words after the last one with a token may have been truncated.
        end = len(spans) if len(ids) < limit else max(with_tokens, default=0)
        empty += [(row, int(word)) for word in np.flatnonzero(spans[:end, 1] == 0)]
    return empty


@dataclass(frozen=True)
class TaggingTask(TokenTask):
    """Label words with a BiLSTM-CRF tagger on the encoder (ROTATE section 4.2).

    It predicts the best label sequence (Viterbi). The encoder is frozen, so the vectors of the training text are
    cached in the rows as `vectors`, in float32: 1.5 KB for a word of 384 dimensions.

    Attributes:
        bio: allow `I-X` only after `B-X` or `I-X`.
    """

    spans: ClassVar[bool] = True
    bio: bool = False

    @classmethod
    def _of(cls, labels: LabelSet, options: Any) -> Self:
        return cls(labels, options.metric, bio=labels.mark_spans)

    def encode(self, examples: Examples, *inputs: Any, training: bool, **options: Any) -> Dataset:
        """Encode sentences; an unknown label, or a word of the training text without a label, raises an InputError."""
        if training and any(UNLABELLED in names for names in examples.rows["labels"]):
            fault = "some words have no label (_), but a tagger learns whole sentences"
            raise InputError(f"{examples.name}: {fault}. Remove such sentences, or remove head=tagger.")
        return super().encode(examples, *inputs, training=training, **options)

    def collate(self, rows: Sequence[Record], pad_token_id: int) -> Batch:
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
        """Add the words' vectors, float32 (words * size,), to the training rows."""
        if "vectors" in encoded.column_names:
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

    def loss(self, output: ModelOutput, batch: Batch) -> torch.Tensor:
        """Return the negative log-likelihood of the labels, summed over sentences."""
        return output["loss"] * self.count_items(batch)

    def predictions(self, output: ModelOutput, batch: Batch) -> list[np.ndarray]:
        """Return the label id of each word that has a token, from the best sequence."""
        return self._by_sentence(output["tags"].flatten()[batch["label_positions"]], batch)


@dataclass(frozen=True)
class SequenceTask(LabelledTask):
    """Label a text or a pair of texts (inference, intents, topics); truncation shortens a pair's longer text.

    Attributes:
        labels: the labels.
        metric: headline score.

    Example:
        >>> task = SequenceTask(LabelSet.of(["neutral", "entailment"]))
        >>> task.config()["label2id"]
        {'entailment': 0, 'neutral': 1}
    """

    kind: ClassVar[str] = "sequence"
    head: ClassVar[str] = "ForSequenceClassification"
    columns: ClassVar[tuple[str, ...]] = ("text_a", "text_b")
    pipeline: ClassVar[str] = "text-classification"
    title: ClassVar[str] = "labelling texts"
    metrics: ClassVar[Mapping[str, str]] = {"accuracy": "the share of texts with the right label"}
    example_inputs: ClassVar[str] = 'tokens = tokenizer("a short sentence", return_tensors="pt")'
    example_result: ClassVar[str] = "label = model.config.id2label[model(**tokens).logits.argmax().item()]"
    cut_off: ClassVar[str] = "examples cut off"
    labels: LabelSet
    metric: Literal["accuracy"] = "accuracy"

    def card(self, examples: Sequence[Examples]) -> dict[str, object]:
        """Show two texts in the card's code, if the first training text has pairs."""
        second = ', "another one"' if examples and "text_b" in examples[0].rows.column_names else ""
        return super().card(examples) | {
            "example_inputs": self.example_inputs.replace(", return", f"{second}, return")
        }

    def _columns(
        self, batch: dict[str, list], tokenizer: PreTrainedTokenizerBase, limit: int, segments: bool
    ) -> tuple[dict[str, list], int, list[tuple[int, int]]]:
        pair = "text_b" in batch
        encoded = tokenizer(
            batch["text_a"],
            batch["text_b"] if pair else None,
            truncation=True,
            max_length=limit,
            return_attention_mask=False,
            return_token_type_ids=pair and segments,
        )
        labels = [self.labels.ids[name] for name in batch["label"]]
        return {**encoded, "label": labels}, sum(bool(encoding.overflowing) for encoding in encoded.encodings), []

    def collate(self, rows: Sequence[Record], pad_token_id: int) -> Batch:
        """Add `labels` int64 (B,)."""
        return {**super().collate(rows, pad_token_id), "labels": torch.tensor([row["label"] for row in rows])}

    def select(self, states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the states, (B, any size)."""
        return states

    def predictions(self, output: ModelOutput, batch: Batch) -> list[np.ndarray]:
        """Return the label id of each text, shape ()."""
        return list(output["logits"].argmax(-1).cpu().numpy())

    def score(self, examples: Examples, encoded: Dataset, predictions: Sequence[np.ndarray]) -> TaskScores:
        """Return `accuracy`."""
        predicted = [self.labels.names[int(label_id)] for label_id in predictions]
        scores = count_classes(predicted, examples.rows["label"][:])
        return TaskScores({"accuracy": scores}, only=_only_label(predicted, examples.label_names))
