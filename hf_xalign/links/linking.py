"""Links of a trainer's text: word-align training pairs, and draw from those with links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from datasets import Dataset

from hf_xalign.cache import map_rows
from hf_xalign.data.load import draw_pairs, whole_sources
from hf_xalign.data.words import split_pairs
from hf_xalign.errors import InputError
from hf_xalign.links.align import align_words
from hf_xalign.links.counts import has_links, link_entries, link_statistics
from hf_xalign.links.symmetrization import Symmetrization

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class LinkedPairs(NamedTuple):
    """Training pairs with links, the record's numbers of their links, of [`link_entries`], and what linked them."""

    pairs: Dataset
    counts: dict[str, dict[str, Any]]
    linked_by: str


@dataclass(frozen=True)
class Linking:
    """Settings by which a trainer word-aligns its training pairs, and draws from those with links.

    Attributes:
        aligner: as in [`align_words`]; `encoder` is the trained encoder, and `encoder:NAME` another one.
        symmetrization: as in [`align_words`].
        one_to_one: drop all links of a word that has several.
        drop_identical: after that, drop links between identical strings.
        subwords: link the tokens of the trained encoder, not words.
        max_pairs: largest number of pairs of each source that are kept.
        draw: keep the `first` pairs with links, or a draw by `seed`.
        seed: seed of the draw and of the aligner.

    Example:
        >>> import pathlib, tempfile
        >>> from datasets import Dataset
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "en-de.txt"
        >>> _ = path.write_text("open\\töffnen\\nfile\\tDatei\\n", encoding="utf-8")
        >>> pair = {"source": "Datei öffnen", "target": "Open the file", "source_lang": "de", "target_lang": "en"}
        >>> linked = Linking(f"dictionary:{path}").apply(Dataset.from_list([pair]))
        >>> linked.pairs["links"][:], linked.linked_by
        ([[[0, 2], [1, 0]]], 'dictionary')
    """

    aligner: str = "fast_align"
    symmetrization: Symmetrization = "intersection"
    one_to_one: bool = True
    drop_identical: bool = False
    subwords: bool = False
    max_pairs: int | None = None
    draw: Literal["first", "seed"] = "seed"
    seed: int = 0

    def apply(
        self,
        pairs: Dataset,
        *,
        links: bool = True,
        model: PreTrainedModel | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> LinkedPairs:
        """Word-align pairs, unless they have links, and keep those with links, or draw from these.

        Aligners are fitted on all pairs, also where only some are drawn.

        With `links=False`, for a loss that reads none, all pairs stay, without links. `model` is the trained encoder,
        for the aligners `encoder` and `encoder:NAME` (on its device), and `tokenizer` its tokenizer.
        """
        given = "links" in pairs.column_names
        kind, _, name = self.aligner.partition(":")
        aligner = self.aligner
        options: dict[str, Any] = {}
        if links and not given and kind == "encoder":
            aligner, options = kind, {"model": model, "tokenizer": tokenizer}
            if name:
                from hf_xalign.modeling.loading import load_encoder

                options = dict(zip(options, load_encoder(name, "cpu" if model is None else model.device)))
            # The encoder links each pair alone, and slowly: it sees a tenth more pairs than are wanted, not all.
            most = (self.max_pairs or len(pairs)) * 11 // 10 + 100
            if max((entry["pairs"] for entry in whole_sources(pairs)), default=len(pairs)) > most:
                pairs = draw_pairs(pairs, np.ones(len(pairs), dtype=bool), most, self.seed, self.draw)
        if self.subwords:
            if "source_words" in pairs.column_names:
                raise InputError(
                    "subword_links=true links tokens, and train_data has words of its own. Name text without words."
                )
            pairs = map_rows(pairs, _subwords, fn_kwargs={"tokenizer": tokenizer}, desc="Splitting subwords")
        if given:
            linked, linked_by = pairs, "given" if links else "none"
        elif links:
            rules, linked_by = (self.symmetrization, self.one_to_one, self.drop_identical), kind
            options |= {"keep_unlinked": True, "seed": self.seed}
            linked = align_words(pairs, aligner, *rules, **options)
        else:
            linked, linked_by = split_pairs(pairs), "none"
        usable = has_links(linked) if links else np.ones(len(pairs), dtype=bool)
        chosen = draw_pairs(linked, usable, self.max_pairs, self.seed, self.draw)
        # A pass over millions of pairs takes seconds.
        dropped = {} if usable.all() else link_statistics(linked.select(np.flatnonzero(usable)), linked)
        return LinkedPairs(chosen, link_entries(link_statistics(chosen), dropped), linked_by)


def _subwords(batch: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase) -> dict[str, list[list[str]]]:
    """Use tokens as words, for `align_words` to link."""
    return {f"{side}_words": list(map(tokenizer.tokenize, batch[side])) for side in ("source", "target")}
