"""Draw the pages' pictures from the tables of docs/results: `python docs/images/draw.py`.

With the folder of the quickstart's model, draw the README's first picture too:
`python docs/images/draw.py runs/fao_joint_builtin`.
"""

import json
import re
import sys
import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
COLORS = ("#3f51b5", "#f57c00")
# {picture: (page, start of the table's header, columns of a bar's label, {series: column}, axis)}
BARS = {
    "results_search": ("languages", "| | en", (), {"encoder": 0, "aligned on German, Bengali": 1}, "found first, %"),
    "word_retrieval": ("fao", "| | de, mean", (0,), {"German": 1, "Bengali": 2}, "word retrieval, %"),
    "results_mao": ("mao", "| module", (0, 1), {"German": 2, "Bengali": 3}, "word retrieval, %"),
    "results_maps": ("maps", "| map", (0, 1), {"raw encoder": 2, "after FAO": 3}, "word retrieval, %"),
    "results_ppa": ("ppa", "| [CLS]", (0,), {"German": 1, "Bengali": 2}, "sentence retrieval by [CLS], %"),
    "results_align_mlm": ("align-mlm", "| objective", (0,), {"zero-shot": 2}, "accuracy of parts of speech, %"),
    "results_slots": ("downstream", "| | en | de | hi", (), {"raw": 0, "joint": 1}, "F1 of slots, %"),
    "results_links": ("links", "| aligner", (0,), {"AER": 3}, "alignment error rate, %: lower is better"),
    "results_speed": ("speed", "| variant", (0,), {"time": 1}, "time of a step, bare encoder = 1"),
}
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def read_table(page: str, start: str) -> list[list[str]]:
    """Return the cells of a page's table, header first, without marks of Markdown."""
    text = (HERE.parent / "results" / f"{page}.md").read_text(encoding="utf-8")
    lines = text[text.index(f"\n{start}") + 1 :].split("\n\n")[0].splitlines()
    plain = [re.sub(r"[*`]|†|\[([^]]+)\]\([^)]*\)", r"\1", line) for line in (lines[0], *lines[2:])]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in plain]


def draw_bars(name: str, page: str, start: str, labels: tuple[int, ...], series: dict[str, int], axis: str) -> None:
    """Draw one group of bars for each row of a table, or for each column where a series is a row."""
    header, *rows = read_table(page, start)
    if labels:
        names = [", ".join(row[k] for k in labels if row[k]) for row in rows]
        values = {one: [NUMBER.match(row[k].lstrip("−-")) for row in rows] for one, k in series.items()}
    else:
        names = header[1:]
        values = {one: [NUMBER.match(cell) for cell in rows[k][1:]] for one, k in series.items()}
    height = 0.8 / len(series)
    figure, axes = plt.subplots(figsize=(7.2, 0.6 + len(names) * (0.2 + 0.17 * len(series))), layout="constrained")
    for number, (one, found) in enumerate(values.items()):
        places = [row + height * (number - (len(series) - 1) / 2) for row in range(len(names))]
        bars = axes.barh(places, [float(value[0]) if value else 0 for value in found], height * 0.92, label=one)
        bars.set_label(one)
        for bar in bars:
            bar.set_color(COLORS[number])
        axes.bar_label(bars, [value[0] if value else "" for value in found], padding=3, fontsize=9)
    axes.set_yticks(range(len(names)), [textwrap.fill(name, 52) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel(axis)
    axes.margins(x=0.08)
    axes.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        figure.legend(frameon=False, loc="outside upper right", ncols=len(series))
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def draw_matrix(run: Path) -> None:
    """Draw how similar the words of a Bengali and an English sentence are, before and after training.

    The sentence is the held-out one whose words gain the most right choices. A row shows what its word chooses:
    a softmax over the English words, of cosines divided by 0.05.
    """
    import torch
    from transformers import AutoModel, AutoTokenizer

    from hf_xalign import encode_words
    from hf_xalign.data.builtin import resolve_model

    rows = [json.loads(line) for line in (run / "eval_links.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["source_lang"] == "bn" and 4 <= len(row["source_words"]) <= 6]
    rows = [row for row in rows if len(row["links"]) >= 4 and len(row["target_words"]) <= 7]
    cosines = []
    for place in (resolve_model("builtin"), run):
        model, tokenizer = AutoModel.from_pretrained(place).eval(), AutoTokenizer.from_pretrained(place)
        sides = []
        for side, lang in (("source", "bn"), ("target", "en")):
            found = encode_words(model, tokenizer, [row[side] for row in rows], lang=lang)
            sides.append([torch.nn.functional.normalize(one.vectors[:, 0], dim=-1) for one in found])
        cosines.append([left @ right.T for left, right in zip(*sides, strict=True)])

    def right(row: dict, similarity: torch.Tensor) -> int:
        return sum(int(similarity[i].argmax()) == j for i, j in row["links"])

    gains = [right(row, after) - right(row, before) for row, before, after in zip(rows, *cosines, strict=True)]
    best = max(range(len(rows)), key=lambda k: (gains[k], right(rows[k], cosines[1][k])))
    scores = json.loads((run / "results.json").read_text(encoding="utf-8"))["scores"]
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.8))
    figure.subplots_adjust(left=0.12, right=0.99, top=0.9, bottom=0.1, wspace=0.34)
    for panel, when, found in zip(panels, ("before", "after"), cosines, strict=True):
        similarity = found[best]
        panel.imshow((similarity / 0.05).softmax(dim=-1), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for i, row in enumerate(similarity.tolist()):
            for j, value in enumerate(row):
                chosen = j == max(range(len(row)), key=row.__getitem__)
                color = "white" if (similarity[i] / 0.05).softmax(dim=-1)[j] > 0.5 else "#444444"
                weight = "bold" if chosen else "normal"
                panel.text(j, i, f"{value:.2f}", ha="center", va="center", color=color, fontsize=9, weight=weight)
        panel.set_xticks(range(len(rows[best]["target_words"])), rows[best]["target_words"], fontsize=8)
        panel.set_yticks(range(len(rows[best]["source_words"])), rows[best]["source_words"])
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
        score = scores[when]["bn"]["retrieval_mean"]
        panel.set_title(f"{when}: {100 * score:.1f}% of words find their translation", fontsize=11)
    figure.savefig(HERE / "alignment.svg", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draw all pictures; the matrix if a run is named."""
    # Words are paths, so that a page shows them without a font of their script.
    plt.rcParams |= {"svg.hashsalt": "hf_xalign", "svg.fonttype": "path", "font.size": 10}
    for name, settings in BARS.items():
        draw_bars(name, *settings)
    if len(sys.argv) > 1:
        # Debian's fonts-lohit-beng-bengali; matplotlib 3.11 is the first that shapes Bengali.
        plt.rcParams["font.family"] = ["DejaVu Sans", "Lohit Bengali"]
        draw_matrix(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
