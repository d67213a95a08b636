"""`hf-xalign align-words`: word links of sentence pairs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from datasets import Dataset

DESCRIPTION = """Link the words of sentence pairs that translate each other.

    hf-xalign align-words de=pairs.tsv --output links.pharaoh
    hf-xalign align-words de=text.de,text.en --format jsonl --output links.jsonl

PAIRS is LANG=FILE (TSV, JSONL, Parquet, TMX; .gz too), LANG=FILE1,FILE2 (line-aligned), a dataset of the Hub, or
embedded:de. Pharaoh format has a line a pair, `0-0 1-2`, the source's word first; its words are what stands between
blanks, so that whoever reads the file finds the same words: tokenize the text first, or take jsonl, whose rows hold
their words and which the recipes read as --eval_links."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The text, the aligner, and what is written."""
    parser.add_argument("pairs", metavar="PAIRS", help="the sentence pairs, see above")
    parser.add_argument("--target_lang", default="en", help="language of the target side")
    parser.add_argument("--split", default="train", help="split of embedded and Hub text")
    parser.add_argument("--max_pairs", type=int, metavar="N", help="use the first N pairs")
    parser.add_argument(
        "--aligner",
        default="fast_align",
        help="fast_align, hmm, ibm1 to ibm4, eflomal, dictionary:PATH, or encoder (word vectors of --model)",
    )
    parser.add_argument("--model", default="embedded", help="encoder of --aligner encoder: Hub id, folder or embedded")
    parser.add_argument("--device", help="of the encoder: cpu or cuda; the GPU by default, where there is one")
    parser.add_argument(
        "--symmetrization",
        default="intersection",
        choices=["intersection", "union", "grow-diag", "grow-diag-final-and"],
        help="how the aligner's two directions are put together",
    )
    parser.add_argument("--several", action="store_true", help="keep words that have several links")
    parser.add_argument("--format", default="pharaoh", choices=["pharaoh", "jsonl"], help="see above")
    parser.add_argument("--output", metavar="FILE", help="standard output by default")
    parser.add_argument("--seed", type=int, default=0, help="of the aligners that draw at random")


def run(args: argparse.Namespace) -> None:
    """Link, and write a line a pair, also for pairs without a link."""
    from hf_xalign.cache import replacing
    from hf_xalign.data.parallel import load_sources
    from hf_xalign.links import align_words

    text = load_sources([args.pairs], target_lang=args.target_lang, split=args.split, max_pairs=args.max_pairs)
    if args.format == "pharaoh":
        text = text.map(_split_at_blanks, batched=True, desc="Splitting at blanks")
    encoder: dict[str, Any] = {}
    if args.aligner == "encoder":
        from hf_xalign.cli.models import choose_device, load_encoder

        model, tokenizer = load_encoder(args.model, choose_device(args.device))
        encoder = {"model": model, "tokenizer": tokenizer}
    linked = align_words(
        text,
        args.aligner,
        args.symmetrization,
        one_to_one=not args.several,
        keep_unlinked=True,
        seed=args.seed,
        **encoder,
    )
    lines = _pharaoh(linked) if args.format == "pharaoh" else _jsonl(linked)
    if args.output is None:
        sys.stdout.writelines(lines)
        return
    with replacing(args.output) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


def _split_at_blanks(batch: dict[str, list[str]]) -> dict[str, list[list[str]]]:
    return {f"{side}_words": [text.split() for text in batch[side]] for side in ("source", "target")}


def _pharaoh(linked: Dataset) -> Iterable[str]:
    return (" ".join(f"{i}-{j}" for i, j in row["links"]) + "\n" for row in linked.select_columns(["links"]))


def _jsonl(linked: Dataset) -> Iterable[str]:
    from hf_xalign.links.frozen import COLUMNS

    return (json.dumps(row, ensure_ascii=False) + "\n" for row in linked.select_columns(list(COLUMNS)))
