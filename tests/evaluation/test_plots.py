"""Figures: what they show, and how their files are written."""

import struct
import subprocess
import sys

import pytest
from support.results import make_grid

from hf_xalign.errors import InputError
from hf_xalign.evaluation import plots
from hf_xalign.evaluation.transfer import Correlation, TransferRun

RUNS = [
    TransferRun(objective, transformation, 0.1 * n, 0.95, 0.5 + 0.05 * n)
    for n, (objective, transformation) in enumerate(
        (o, t) for o in ("mlm", "xlm", "dict_mlm", "align_mlm") for t in ("trans", "trans o inv")
    )
]


def size_of_png(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND"
    return struct.unpack(">II", data[16:24])


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved."""
    pytest.importorskip("matplotlib")
    figures = []
    save = plots.save_figure
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: (figures.append(figure), save(figure, path))[1])
    return figures


def test_missing_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r'pip install "hf_xalign\[plots\]"'):
        plots.alignment_plot(RUNS, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def test_alignment_plot(drawn, tmp_path):
    path = plots.alignment_plot(RUNS, tmp_path / "deep" / "a.png", Correlation(-0.7273, 0.0096, 8, True))
    assert min(size_of_png(path)) > 400 and list(path.parent.iterdir()) == [path]
    [axes] = drawn[0].axes
    points = [tuple(part.get_offsets()[0].tolist()) for part in axes.collections]
    assert points == [(100 * run.alignment, 100 * run.delta) for run in RUNS]
    assert axes.get_title() == "Spearman's rho = -0.73, p = 0.010 (8 runs)"
    [legend] = drawn[0].legends
    names = ["mlm", "xlm", "dict_mlm", "align_mlm", "trans", "trans o inv"]
    assert [text.get_text() for text in legend.get_texts()] == names
    colours = [tuple(part.get_facecolor()[0]) for part in axes.collections]
    assert len(set(colours)) == 2 and colours[0] == colours[2] != colours[1]
    shapes = [part.get_paths()[0].vertices.tolist() for part in axes.collections]
    assert shapes[0] == shapes[1] != shapes[2]


def test_histogram_grid(drawn, tmp_path):
    grid = make_grid(("raw", "aligned", "tuned"), ("bn", "de"))
    path = plots.histogram_grid(grid, tmp_path / "b.png", measure="cosine")
    assert min(size_of_png(path)) > 400
    assert plots.histogram_grid(grid, tmp_path / "c.png", measure="cosine").read_bytes() == path.read_bytes()
    axes = drawn[0].axes
    assert len(axes) == 6
    assert [axes[n].get_title() for n in (0, 1)] == ["bn", "de"]
    assert [axes[n].get_ylabel() for n in (0, 2, 4)] == ["raw", "aligned", "tuned"]
    for n, one in enumerate(axes):
        linked, random = (patch.get_data().values.tolist() for patch in one.patches)
        assert (linked, random) == ([0.7, 0.2, 0.1], [0.1, 0.4, 0.5])
        assert [text.get_text() for text in one.texts] == [f"AUC {0.9 - 0.1 * (n // 2):.3f}"]
    assert drawn[0].get_supxlabel() == "cosine distance, layer -1"


@pytest.mark.slow
def test_matplotlib_is_imported_late_and_pyplot_never(tmp_path):
    pytest.importorskip("matplotlib")
    code = f"""
import sys
from hf_xalign.evaluation import plots
assert "matplotlib" not in sys.modules
from hf_xalign.evaluation.transfer import TransferRun
plots.alignment_plot([TransferRun("mlm", "trans", 0.5, 0.9, 0.8)], {str(tmp_path / "a.png")!r})
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
