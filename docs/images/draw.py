"""Draw word_retrieval.svg from the first table of docs/results.md: `python docs/images/draw.py`."""

import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
ROWS = {
    "the encoder": ("before", "#b8bfcc"),
    "FAO": ("FAO", "#3f51b5"),
    "joint": ("joint", "#8e24aa"),
    "word-level": ("InfoNCE", "#00897b"),
}


def main() -> None:
    """Draw one group of bars a language: mean subword, before and after alignment."""
    text = (HERE.parent / "results.md").read_text(encoding="utf-8")
    plt.rcParams |= {"svg.hashsalt": "hf_xalign", "font.size": 11}
    figure, axes = plt.subplots(figsize=(7.2, 3.0), layout="constrained")
    for number, (start, (name, colour)) in enumerate(ROWS.items()):
        row = re.search(rf"^\| {start}.*$", text, re.MULTILINE)
        scores = [float(cell.split()[0]) for cell in row[0].split("|")[2:4]] if row else []
        places = [language + 0.22 * (number - 1.5) for language in range(2)]
        axes.bar_label(axes.bar(places, scores, 0.2, label=name, color=colour), fmt="%.1f", padding=2)
    axes.set(xticks=range(2), xticklabels=["German", "Bengali"], ylim=(0, 100), ylabel="word retrieval, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(HERE / "word_retrieval.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
