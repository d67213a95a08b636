"""`hf-xalign inspect`: the words of two sentences, and how similar they are to a model, before and after."""

from __future__ import annotations

import argparse
import shutil
from typing import TYPE_CHECKING

from hf_xalign.cli.terminal import cut, left, right, show, width

if TYPE_CHECKING:
    from hf_xalign.evaluation.similarity import WordSimilarity

DESCRIPTION = """Show how similar the words of two sentences are to a model; the highest of a row has a star.

    hf-xalign inspect runs/fao_embedded --base embedded --source_lang de \\
        --source "Der Hund schläft." --target "The dog is sleeping."

Matrices stand side by side where the terminal is wide enough. --html has every script; --png (extra `plots`) those
that matplotlib's own font has."""

_WORD = 14  # columns of a word at most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The models, the sentences, the measure, and what is written."""
    parser.add_argument(
        "model", metavar="MODEL", help="a folder, Hub id or embedded; adapters and mapped encoders too"
    )
    parser.add_argument("--source", required=True, metavar="TEXT", help="a sentence: the rows")
    parser.add_argument("--target", required=True, metavar="TEXT", help="its translation: the columns")
    parser.add_argument("--base", metavar="MODEL", help="what it is set against: the encoder before training")
    parser.add_argument(
        "--source_lang",
        default="und",
        help="language of the source: needed to split Thai into words, and by models with a map for each language",
    )
    parser.add_argument("--target_lang", default="en", help="language of the target")
    parser.add_argument("--measure", default="cosine", choices=["cosine", "csls"], help="csls discounts hubs")
    parser.add_argument("--k", type=int, default=10, help="neighbours of CSLS, in the other sentence")
    parser.add_argument("--layer", type=int, default=-1, help="which layer: -1 the last, 0 the embeddings")
    parser.add_argument("--pooling", default="mean", choices=["mean", "first", "last"], help="subwords of a word")
    parser.add_argument("--device", help="cpu or cuda; the GPU by default, where there is one")
    parser.add_argument("--png", metavar="FILE", help="draw the matrices there too")
    parser.add_argument("--html", metavar="FILE", help="write them there too, as a page")


def run(args: argparse.Namespace) -> None:
    """Compute and show the matrices."""
    from hf_xalign.cli.models import choose_device, load_encoder
    from hf_xalign.evaluation.plots import require_matplotlib
    from hf_xalign.evaluation.similarity import similarity_plot, word_similarity
    from hf_xalign.record import write_text

    if args.png:
        require_matplotlib()
    device = choose_device(args.device)
    named = {f"before: {args.base}": args.base, f"after: {args.model}": args.model}
    if not args.base:
        named = {args.model: args.model}
    found = {}
    for title, name in named.items():  # one model at a time is in memory
        model, tokenizer = load_encoder(name, device)
        found[title] = word_similarity(
            model,
            tokenizer,
            args.source,
            args.target,
            source_lang=args.source_lang,
            target_lang=args.target_lang,
            layer=args.layer,
            pooling=args.pooling,
            measure=args.measure,
            k=args.k,
        )
        del model
    show(as_text(found, columns=shutil.get_terminal_size().columns))
    if args.png:
        show(f"saved: {similarity_plot(found, args.png, measure=args.measure)}")
    if args.html:
        from pathlib import Path

        from hf_xalign.report import render_similarity

        page = render_similarity(found, measure=args.measure, source=args.source, target=args.target)
        show(f"saved: {write_text(Path(args.html), page)}")


def as_text(found: dict[str, WordSimilarity], columns: int) -> str:
    """Matrices for a terminal so wide, side by side where they fit.

    Args:
        found: title of each matrix -> matrix.
        columns: the terminal's.
    """
    blocks = [_block(title, one) for title, one in found.items()]
    widths = [max(map(width, block)) for block in blocks]
    if sum(widths) + 4 * (len(blocks) - 1) > columns:
        return "\n\n".join("\n".join(block) for block in blocks)
    rows = zip(*blocks, strict=True)  # the same sentences, so the same rows
    return "\n".join("    ".join(left(cell, n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows)


def _block(title: str, one: WordSimilarity) -> list[str]:
    """A title and a matrix, as lines."""
    rows = [cut(word, _WORD) for word in one.source_words]
    heads = [cut(word, _WORD) for word in one.target_words]
    first = max(map(width, rows))
    # The star stands behind the number, and a column's head above the number.
    widths = [max(width(head), len("-0.00")) for head in heads]
    head = left("", first) + "".join(f"  {right(word, n)} " for word, n in zip(heads, widths, strict=True))
    lines = [title, head.rstrip()]
    for word, values, best in zip(rows, one.values.tolist(), one.nearest(), strict=True):
        cells = [
            "  " + ("-" if value != value else f"{value:.2f}").rjust(n) + ("*" if column == best else " ")
            for column, (value, n) in enumerate(zip(values, widths, strict=True))
        ]
        lines.append((left(word, first) + "".join(cells)).rstrip())
    return lines
