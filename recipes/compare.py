r"""Compare systems over languages and seeds: means, spread, significance, intervals; as text, Markdown and LaTeX.

    hf-xalign compare runs/raw runs/fao runs/continual --markdown table.md --latex table.tex

Give folders of `hf-xalign train finetune`, or of `train fao`, `mao`, `ppa` and `mapping` with `--seeds`, the baseline
first. `FOLDER/scores/NAME/before` has the encoder before training. All folders need the same task, metric, test sets,
seeds and languages; `--seeds 0 1` and `--languages de hi` select what they have in common. `--names` replaces their
names. The first table has mean ± standard deviation over seeds of each system, in points. The second has each system's
differences from the baseline. The same folders give the same tables.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from hf_xalign.recipes.parts.arguments import option
from hf_xalign.recipes.parts.command import run
from hf_xalign.tables import table

if TYPE_CHECKING:
    from hf_xalign.statistics.comparison import Comparison

_BETTER, _WORSE, _MINUS = "*", "†", "−"
_WIDTH = 119  # of the notes in a terminal
_LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # at the head of a row it would be an argument of the line break before it
    "]": "{]}",
    _BETTER: r"\textsuperscript{*}",
    _WORSE: r"\textsuperscript{\dag}",
    _MINUS: "$-$",
    "±": r"$\pm$",
}
_MARKDOWN = {character: f"\\{character}" for character in r"\`*_[]|~$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


@dataclass
class CompareArguments:
    """Systems to compare, and files to write."""

    folders: list[str] = option("Data", "The systems' folders, the baseline first; also taken without --folders.")
    names: list[str] | None = option("Data", "Names of the systems. Default: names of their folders.", None)
    languages: list[str] | None = option("Data", "Languages to compare, in this order. Default: all.", None)
    seeds: list[int] | None = option("Data", "Seeds to compare. Default: all.", None, distinct=True)
    level: float = option("Tests", "p below which a difference is marked as significant.", 0.05)
    confidence: float = option("Tests", "Share of the resampled differences inside the intervals.", 0.95)
    permutations: int = option("Tests", "Number of permutations of the permutation test.", 10_000)
    concatenate_seeds: bool = option(
        "Tests", "Swap the answers of each seed independently (Efimov et al. 2022), not of all seeds together.", False
    )
    resamples: int = option("Tests", "Number of bootstrap resamples of examples and seeds for the intervals.", 2000)
    seed: int = option("Tests", "Seed of permutations and resamples.", 0, least=0)
    markdown: str | None = option("Output", "File to write as Markdown.", None)
    latex: str | None = option("Output", "File to write as LaTeX, for the package booktabs.", None)


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.cache import check_output
    from hf_xalign.config import parse
    from hf_xalign.record import write_text

    argv = sys.argv[1:] if argv is None else argv
    if argv and not argv[0].startswith("-"):
        argv = ["--folders", *argv]
    (args,) = parse((CompareArguments,), argv, description=__doc__)
    files = [(path, write) for path, write in ((args.markdown, as_markdown), (args.latex, as_latex)) if path]
    for path, _ in files:
        check_output(path, file=True)

    from hf_xalign.statistics.comparison import compare

    settings = {name: value for name, value in vars(args).items() if name not in ("folders", "markdown", "latex")}
    comparison = compare(args.folders, **settings)
    print(as_text(comparison))
    for path, write in files:
        write_text(Path(path), write(comparison) + "\n")
    if files:
        print("\nsaved: " + ", ".join(path for path, _ in files))


def as_text(comparison: Comparison) -> str:
    """Return both tables and the notes as plain text."""
    tables = [table(rows, len(rows[0]) - 1) for rows in _tables(comparison)]
    return "\n\n".join([*tables, *(fill(note, _WIDTH) for note in _notes(comparison))])


def as_markdown(comparison: Comparison) -> str:
    """Return both tables and the notes as Markdown."""
    escape = str.maketrans(_MARKDOWN)
    blocks = []
    for head, *body in _tables(comparison):
        rule = ["---", *["---:"] * (len(head) - 1)]
        lines = [[cell.translate(escape) for cell in row] for row in (head, *body)]
        lines.insert(1, rule)
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join([*blocks, *(note.translate(escape) for note in _notes(comparison))])


def as_latex(comparison: Comparison) -> str:
    """Return both tables as LaTeX `tabular`s (package booktabs), with the notes as comments."""
    escape = str.maketrans(_LATEX)
    blocks = []
    for rows in _tables(comparison):
        head, *body = (" & ".join(cell.translate(escape) for cell in row) + r" \\" for row in rows)
        columns = "l" + "r" * (len(rows[0]) - 1)
        blocks.append(
            "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"])
            + "\n\\end{tabular}"
        )
    return "\n\n".join(["\n".join(f"% {note}" for note in _notes(comparison)), *blocks])


def _tables(comparison: Comparison) -> list[list[list[str]]]:
    marks = {
        (difference.system, difference.language): f" {_BETTER if difference.difference > 0 else _WORSE}"
        for difference in comparison.differences
        if difference.corrected is not None and difference.corrected < comparison.level
    }
    several = len(comparison.languages) > 1
    means = [["system", *comparison.languages, *["average"] * several]]
    for system in comparison.systems:
        scores = [system.scores(code) for code in comparison.languages]
        cells = [
            _spread(seed_scores) + marks.get((system.name, code), "")
            for code, seed_scores in zip(comparison.languages, scores, strict=True)
        ]
        means.append([_line(system.name), *cells, *[_spread(np.mean(scores, axis=0))] * several])
    interval = f"{100 * comparison.confidence:g}% interval"
    rows = [["system", "language", "examples", "difference", interval, "p", "p corrected"]]
    for difference in comparison.differences:
        bounds = f"[{_signed(difference.low)}, {_signed(difference.high)}]"
        cells = [
            _line(difference.system),
            difference.language or "average",
            str(difference.examples),
            _signed(difference.difference),
            bounds,
        ]
        rows.append([*cells, _p(difference.p), _p(difference.corrected)])
    return [means, rows]


def _notes(comparison: Comparison) -> list[str]:
    """Return one line for each thing measured and tested."""
    first = comparison.systems[0]
    trained = {system.train_language for system in comparison.systems}
    by_system = "; ".join(f"{_line(system.name)} on {system.train_language}" for system in comparison.systems)
    told = f", trained on {first.train_language if len(trained) == 1 else by_system}" if any(trained) else ""
    seeds = " ".join(map(str, first.seeds))
    count = len(comparison.languages)
    notes = [
        f"{first.task}, {first.metric}{told}; "
        f"mean{' ± standard deviation' * (len(first.seeds) > 1)} over seeds {seeds}, in points.",
        f"{_BETTER} better, {_WORSE} worse than {_line(first.name)}: p < {comparison.level:g} by the "
        f"{comparison.test} over examples{f', after Holm over the {count} languages of a system' * (count > 1)}.",
    ]
    if len(first.seeds) > 1:
        notes.append(
            "p covers other test examples for these models; the intervals also cover other seeds. A marked difference "
            "whose interval contains 0 may be due to the seeds."
        )
    else:
        notes.append("One seed only: p and intervals do not cover the variation between seeds.")
    return [_line(note) for note in notes]


def _spread(scores: np.ndarray) -> str:
    """Format the mean and, over several seeds, the sample standard deviation, in points."""
    spread = f" ± {100 * scores.std(ddof=1):.1f}" if len(scores) > 1 else ""
    return f"{100 * scores.mean():.1f}{spread}"


def _signed(difference: float) -> str:
    points = f"{100 * difference:+.1f}"
    return "0.0" if float(points) == 0 else points.replace("-", _MINUS)


def _p(p: float | None) -> str:
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _line(name: str) -> str:
    return " ".join(name.split())


if __name__ == "__main__":
    run(main, when_interrupted="nothing was saved")
