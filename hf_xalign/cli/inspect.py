"""`hf-xalign inspect`: show how similar the words of two sentences are to a model."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hf_xalign.checks import setting
from hf_xalign.data.sources import check_models
from hf_xalign.tables import cut, pad, table, width

if TYPE_CHECKING:
    from hf_xalign.evaluation.similarity import WordSimilarity

DESCRIPTION = """Show how similar the words of two sentences are to a model. A star marks the highest value of a row.

    hf-xalign inspect runs/fao_builtin --base builtin --source_lang de \\
        --source "Der Hund schläft." --target "The dog is sleeping."

--html shows every script. --png (extra `plots`) shows the scripts of matplotlib's own font."""

_LONGEST_WORD = 14  # columns


@dataclass(kw_only=True)
class Arguments:
    """The models, the sentences, the measure and the output files."""

    model: str = setting(positional=True, metavar="MODEL", help="folder, Hub id or builtin; also an adapter")
    source: str = setting(help="a sentence: the rows")
    target: str = setting(help="its translation: the columns")
    base: str | None = setting(None, metavar="MODEL", help="model to compare with: the encoder before training")
    source_lang: str = setting(
        "und", help="language of the source, needed to split Thai into words and for models with a map per language"
    )
    target_lang: str = setting("en", help="language of the target")
    measure: Literal["cosine", "csls"] = setting("cosine", help="similarity; csls corrects the cosine for hubs")
    k: int = setting(10, help="neighbours of CSLS, in the other sentence")
    layer: int = setting(-1, help="layer: -1 is the last, 0 the embeddings")
    pooling: Literal["mean", "first", "last"] = setting("mean", help="subwords of a word")
    device: str | None = setting(None, help="cpu or cuda (default: the GPU if there is one)")
    png: str | None = setting(None, metavar="FILE", help="also draw the matrices in this file")
    html: str | None = setting(None, metavar="FILE", help="also write the matrices as a page")


def run(args: Arguments) -> None:
    """Compute and print the matrices."""
    check_models([args.model, args.base])

    from hf_xalign.cache import write_text
    from hf_xalign.evaluation.plots import require_matplotlib
    from hf_xalign.evaluation.similarity import similarity_plot, word_similarity
    from hf_xalign.modeling.loading import choose_device, load_encoder

    if args.png:
        require_matplotlib()
    device = choose_device(args.device)
    names = {args.model: args.model}
    if args.base:
        names = {f"before: {args.base}": args.base, f"after: {args.model}": args.model}
    options = {
        name: getattr(args, name) for name in ("source_lang", "target_lang", "layer", "pooling", "measure", "k")
    }
    matrices = {}
    for title, name in names.items():  # only one model in memory at a time
        model, tokenizer = load_encoder(name, device)
        matrices[title] = word_similarity(model, tokenizer, args.source, args.target, **options)
        del model
    print(as_text(matrices, columns=shutil.get_terminal_size().columns))
    if args.png:
        print(f"saved: {similarity_plot(matrices, args.png, measure=args.measure)}")
    if args.html:
        from pathlib import Path

        from hf_xalign.report import render_similarity

        page = render_similarity(matrices, measure=args.measure, source=args.source, target=args.target)
        print(f"saved: {write_text(Path(args.html), page)}")


def as_text(matrices: dict[str, WordSimilarity], columns: int) -> str:
    """Format {title: matrix} of two sentences for a terminal, side by side if it has enough columns."""
    blocks = [_block(title, matrix) for title, matrix in matrices.items()]
    widths = [max(map(width, block)) for block in blocks]
    if sum(widths) + 4 * (len(blocks) - 1) > columns:
        return "\n\n".join("\n".join(block) for block in blocks)
    rows = zip(*blocks, strict=True)
    return "\n".join("    ".join(map(pad, row, widths)).rstrip() for row in rows)


def _block(title: str, matrix: WordSimilarity) -> list[str]:
    rows = [("", *(cut(word, _LONGEST_WORD) + " " for word in matrix.target_words))]
    for word, values, best in zip(matrix.source_words, matrix.values.tolist(), matrix.nearest(), strict=True):
        # A word without a vector has NaN. A star or a space follows each number.
        cells = ["-" if value != value else f"{value:.2f}" for value in values]
        marked = (cell + ("*" if column == best else " ") for column, cell in enumerate(cells))
        rows.append((cut(word, _LONGEST_WORD), *marked))
    return [title, *table(rows, len(matrix.target_words)).splitlines()]
