"""`hf-xalign align-words`: word-align sentence pairs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from hf_xalign.cli import pairs

DESCRIPTION = """Align the words of sentence pairs.

    hf-xalign align-words de=pairs.tsv --output links.pharaoh
    hf-xalign align-words de=text.de,text.en --format jsonl --output links.jsonl

PAIRS is LANG=FILE (TSV, CSV, JSONL, JSON, Parquet, TMX; .gz too), LANG=FILE1,FILE2 (line by line), a Hub dataset, or
embedded:de.

Pharaoh format has one line of links for each pair, such as `0-0 1-2`, with the source word first. It splits words at
blanks only, so tokenize the text first. The rows of jsonl hold their words, and the recipes read them as
--eval_links."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the text, the aligner and the output."""
    parser.add_argument("pairs", metavar="PAIRS", help="the sentence pairs, see above")
    pairs.add_options(parser, "train")
    parser.add_argument("--max_pairs", type=int, metavar="N", help="use the first N pairs")
    parser.add_argument(
        "--aligner",
        default="fast_align",
        help="fast_align, hmm, ibm1 to ibm4, eflomal, dictionary:PATH, or encoder (word vectors of --model)",
    )
    parser.add_argument("--model", default="embedded", help="encoder of --aligner encoder: Hub id, folder or embedded")
    parser.add_argument("--device", help="device of the encoder: cpu or cuda (default: the GPU if there is one)")
    parser.add_argument(
        "--symmetrization",
        default="intersection",
        choices=["intersection", "union", "grow-diag", "grow-diag-final-and"],
        help="how to combine the two directions of the aligner",
    )
    parser.add_argument("--several", action="store_true", help="keep words that have several links")
    parser.add_argument("--format", default="pharaoh", choices=["pharaoh", "jsonl"], help="format of the output")
    parser.add_argument("--output", metavar="FILE", help="file to write (default: standard output)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the aligners that sample")


def run(args: argparse.Namespace) -> None:
    """Align the pairs and write one line for each, also for pairs without a link."""
    from hf_xalign.cache import map_rows, replacing
    from hf_xalign.data.parallel import load_sources
    from hf_xalign.links import align_words
    from hf_xalign.links.frozen import COLUMNS

    text = load_sources([args.pairs], split=args.split, max_pairs=args.max_pairs, **pairs.columns(args))
    if args.format == "pharaoh":
        text = map_rows(text, _split_at_blanks, batched=True, desc="Splitting at blanks")
    encoder: dict[str, Any] = {}
    if args.aligner == "encoder":
        from hf_xalign.cli.models import load_encoder
        from hf_xalign.modeling.loading import choose_device

        encoder["model"], encoder["tokenizer"] = load_encoder(args.model, choose_device(args.device))
    linked = align_words(
        text,
        args.aligner,
        args.symmetrization,
        one_to_one=not args.several,
        keep_unlinked=True,
        seed=args.seed,
        **encoder,
    )
    if args.format == "pharaoh":
        lines = (" ".join(f"{i}-{j}" for i, j in row["links"]) + "\n" for row in linked.select_columns(["links"]))
    else:
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in linked.select_columns(list(COLUMNS)))
    if args.output is None:
        sys.stdout.writelines(lines)
        return
    with replacing(args.output) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


def _split_at_blanks(batch: dict[str, list[str]]) -> dict[str, list[list[str]]]:
    return {f"{side}_words": [text.split() for text in batch[side]] for side in ("source", "target")}
