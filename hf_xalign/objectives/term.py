"""Terms of a loss, the vectors that they read, and the weighted sum that a trainer minimizes."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal, NoReturn

import torch
from torch import nn

from hf_xalign.checks import check
from hf_xalign.data.batches.pairs import RegularizedWords, Side
from hf_xalign.distributed import process_count, whole_loss
from hf_xalign.errors import InputError
from hf_xalign.modeling.contrast import KeyQueue

Read = Literal[
    "links", "words", "f0", "sentences", "sentences0", "texts", "sub_batches", "keys", "projections",
    "masked", "entries",
]  # fmt: skip
_BY_LAYER = ("words", "f0", "sentences", "sentences0")  # vectors of several layers
_COMPUTED = {*_BY_LAYER, "queries", "keys", "queue", "projections", "states", "embeddings", "entries"}


class Vectors:
    """Vectors of one batch of B sentence pairs, computed once for all terms.

    Attributes:
        batch: the collated tensors, see the trainer's collator.
        words: float (W, layers, dim), f of the batch's words, source sides first.
        f0: float (G, layers, dim), f0 of the kept words, in the order of `batch["kept_words"]`, without gradient.
        sentences: float (2B, layers, dim), the mean of each sentence's token vectors, all sources, then all targets.
        sentences0: the same vectors from the encoder before training, without gradient.
        queries: float (B, size), projected vectors of one side of each pair, drawn at random.
        keys: float (B, size), those of the other side by the momentum encoder, without gradient.
        queue: keys of earlier steps, with the pair of each.
        projections: float (B, 2, size), projected vectors of both sides: the one that `queries` has first, which
            `batch["query_is_target"]` tells, bool (B,).
        states: float (rows, width, dim), last hidden states of the batch's masked text.
        embeddings: float (V, dim), the input word embeddings.
        entries: int64 (n, 2), the tokens of this step's dictionary entries.
        heads: function from the name of a module that is trained next to the encoder to the module.

    Raises:
        InputError: a term uses vectors that are not in its `reads`.
    """

    batch: dict[str, torch.Tensor]
    words: torch.Tensor
    f0: torch.Tensor
    sentences: torch.Tensor
    sentences0: torch.Tensor
    queries: torch.Tensor
    keys: torch.Tensor
    queue: KeyQueue
    projections: torch.Tensor
    states: torch.Tensor
    embeddings: torch.Tensor
    entries: torch.Tensor
    heads: Callable[[str], nn.Module]

    def __init__(
        self, batch: dict[str, torch.Tensor], *, heads: Callable[[str], nn.Module] | None = None, **computed: object
    ):
        self.batch = batch
        self.heads = heads or nn.ModuleDict().__getitem__
        self.__dict__.update(computed)

    def __getattr__(self, name: str) -> NoReturn:
        if name in _COMPUTED:
            raise InputError(f"vectors.{name} was not computed: add it to the term's `reads`")
        raise AttributeError(name)

    def linked(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the vectors of both words of each link, source and target, each (links, layers, dim)."""
        links = self.batch["links"]
        return self.words[links[:, 0]], self.words[links[:, 1]]

    def at(self, positions: Sequence[int] | None) -> Vectors:
        """Return the vectors of the layers at these positions, or of all if None."""
        if positions is None:
            return self
        chosen = copy.copy(self)
        chosen.__dict__.update({n: self.__dict__[n][:, list(positions)] for n in _BY_LAYER if n in self.__dict__})
        return chosen


@dataclass(kw_only=True)
class Term(ABC):
    """One term of a loss: a sum over items of a batch, divided by the number of items in the whole optimizer step.

    A subclass lists what it `reads`, and the trainer computes exactly that. FAO, MAO and continual learning read pairs
    of linked words and sentences:

    - `links`: `batch["links"]` int64 (L, 2) and `vectors.words` of the linked words.
    - `words`: `vectors.words` of all words, and `batch["word_sentences"]` int64 (W,), their sentences, 0 to 2B-1.
    - `f0`: `vectors.f0` of the words of `kept`, and `batch["kept_words"]` int64 (G,), their places in `words`.
    - `sentences`: `vectors.sentences`.
    - `sentences0`: `vectors.sentences0`.
    - `texts`: `batch["texts"]` int64 (B,), equal for equal pivot sentences.
    - `sub_batches`: `batch["link_divisors"]` and `batch["kept_divisors"]`, see `LinkCollator`.

    PPA and ALIGN-MLM read sentences and masked text:

    - `keys`: `vectors.queries`, `vectors.keys`, `vectors.queue` and `batch["pairs"]` int64 (B,), numbers of the pairs
      in the corpus (PPA).
    - `projections`: `vectors.projections`, without a momentum encoder and a queue, and `batch["pairs"]` (PPA).
    - `masked`: `vectors.states`, `vectors.embeddings`, `batch["mlm_positions"]` and `batch["mlm_labels"]`, int64 (M,).
      The text is a sentence, or in PPA a pair if a term has `seen="pair"`.
    - `entries`: `vectors.entries` and `vectors.embeddings` (ALIGN-MLM).

    Args:
        weight: factor of the term in the loss.
        layers: numbers of the hidden states that it reads (0: embeddings, -1: last); default: those of the trainer.

    Raises:
        InputError: a setting is none of the choices of its type, or breaks a rule of its field.

    Example:
        >>> import torch
        >>> from dataclasses import dataclass
        >>> from hf_xalign.objectives import Term, Vectors
        >>> @dataclass(kw_only=True)
        ... class Cosine(Term):
        ...     name = "cosine"
        ...     reads = ("links",)
        ...     def count(self, batch):
        ...         return len(batch["links"])
        ...     def __call__(self, vectors):
        ...         return (1 - torch.cosine_similarity(*vectors.linked(), dim=-1)).sum()
        ...     def formula(self):
        ...         return "mean over links 1 - cos(f(i, s), f(j, t))"
        >>> batch = {"links": torch.tensor([[0, 1]])}
        >>> Cosine()(Vectors(batch, words=torch.eye(2).unsqueeze(1)))
        tensor(1.)
    """

    weight: float = 1.0
    layers: Sequence[int] | None = None

    name: ClassVar[str]
    reads: ClassVar[tuple[Read, ...]] = ()
    # The sum is over the items of all processes, as in a contrast.
    gathers: ClassVar[bool] = False
    # The term compares vectors of one layer.
    one_layer: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self)

    @abstractmethod
    def count(self, batch: dict[str, torch.Tensor]) -> int | None:
        """Return the number of items in a batch, which the sum is divided by, or None to leave the sum undivided."""

    @abstractmethod
    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum over the items of this process, or of all processes if `gathers`, as a scalar."""

    @abstractmethod
    def formula(self) -> str:
        """Return the term without its weight as plain text, for record and card."""

    @property
    def needs(self) -> frozenset[Read]:
        """Return the names of the tensors that the term reads with its settings."""
        return frozenset(self.reads)

    @property
    def kept(self) -> tuple[Side, RegularizedWords] | None:
        """Return the side and the words whose f0 the term reads, or None."""
        return None

    def head(self, size: int) -> nn.Module | None:
        """Return a module to train with an encoder of this hidden size, which is left out of the result, or None."""
        return None

    def share(self, vectors: Vectors, count: torch.Tensor) -> torch.Tensor:
        """Return a micro-batch's share of the term, which is summed over micro-batches and averaged over processes.

        `count`, int64, is the number of items in the whole optimizer step.
        """
        total = self(vectors)
        # The average over processes must be the sum over them, because `count` is of all of them.
        if not self.gathers:
            total = total * process_count()
        if self.count(vectors.batch) is not None:
            total = total / count.clamp(min=1)
        return whole_loss(total) if self.gathers else total


class Objective(Sequence[Term]):
    """Terms of a loss, in order: L = sum of weight * term; none for a loss that is not a list of terms.

    Raises:
        InputError: two terms have the same name; a weight is not positive; or two terms keep different sides or words.

    Example:
        >>> from hf_xalign.objectives import KeepPivot, Objective, WordDistance
        >>> print(Objective([WordDistance(norm="l2"), KeepPivot(weight=5.0, norm="l2")]).formula())
        mean over links ||f(i, s) - f(j, t)||
        + 5 mean over all target words ||f - f0||
    """

    def __init__(self, terms: Iterable[Term]):
        self._terms = list(terms) if isinstance(terms, Iterable) else [terms]
        for term in self._terms:
            if not 0 < term.weight < inf:
                raise InputError(
                    f"objective: {term.name} has weight {term.weight}. Give it a positive weight, or remove the term."
                )
        names = [term.name for term in self._terms]
        if double := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"objective: two terms are called {double[0]}. Give one of the classes another `name`.")
        kept = [term.kept for term in self._terms if term.kept]
        sides, words = {side for side, _ in kept}, {words for _, words in kept if words != "linked"}
        # f0 is computed once, and all terms read it.
        if len(sides) > 1 or len(words) > 1:
            raise InputError(
                "objective: the terms read f0 of different words "
                f"({', '.join(f'{which} {side}' for side, which in kept)}). Give them the same side and words."
            )
        self.kept_side: Side = kept[0][0] if kept else "target"
        self.kept_words: RegularizedWords = words.pop() if words else "linked"

    def __getitem__(self, index: int | slice) -> Any:
        return self._terms[index]

    def __len__(self) -> int:
        return len(self._terms)

    def reads(self, *names: Read) -> bool:
        """Return whether a term reads one of these."""
        return any(term.needs & set(names) for term in self)

    def require(self, supplied: Collection[Read], otherwise: str) -> None:
        """Raise an InputError that ends with `otherwise` if a term reads something that is not `supplied`."""
        for term in self:
            if missing := sorted(term.needs - set(supplied)):
                raise InputError(f"objective: {term.name} reads {missing[0]}, {otherwise}")

    def formula(self) -> str:
        """Return the sum as plain text, a term a line."""
        return "\n+ ".join(("" if term.weight == 1 else f"{term.weight:g} ") + term.formula() for term in self)

    def all_layers(self, default: Sequence[int], number: Callable[[Sequence[int]], list[int]]) -> list[int]:
        """Return the numbers of the hidden states that the terms read; `number` resolves negative layers."""
        every: dict[int, None] = {}
        for term in self:
            layers = number(term.layers or default)
            if term.one_layer and len(layers) != 1:
                raise InputError(f"{type(term).__name__} compares vectors of one layer: give one layer, not {layers}")
            every |= dict.fromkeys(layers)
        return list(every)

    def heads(self, size: int) -> nn.ModuleDict:
        """Return the modules that are trained next to the encoder, by the name of their term."""
        heads = nn.ModuleDict()
        for term in self:
            if (head := term.head(size)) is not None:
                heads[term.name] = head
        return heads

    def counts(self, batch: dict[str, torch.Tensor]) -> list[int]:
        """Return each term's number of items in a batch."""
        return [term.count(batch) or 0 for term in self]

    def __call__(
        self,
        vectors: Vectors,
        counts: torch.Tensor,
        log: Callable[[str, torch.Tensor], None],
        positions: Sequence[Sequence[int] | None] | None = None,
    ) -> torch.Tensor:
        """Return a micro-batch's share of the loss, which is summed over micro-batches and averaged over processes.

        `counts`, int64 (terms,), are the numbers of items in the whole optimizer step. `log` gets the name and the
        value of each term. `positions` are each term's layers among those of the vectors, by default all.
        """
        loss: Any = None
        for term, count, layers in zip(self, counts, positions or [None] * len(self), strict=True):
            value = term.share(vectors.at(layers), count)
            log(term.name, value)
            loss = term.weight * value if loss is None else loss + term.weight * value
        return loss
