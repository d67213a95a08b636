"""Without sil-thot, which has no wheel for Linux on aarch64, all but the statistical aligners works."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import sys
sys.modules["thot"] = None  # an import of it fails
import hf_xalign, hf_xalign.trainers, hf_xalign.recipes.fao, hf_xalign.metrics
from datasets import Dataset
from support.tiny import SENTENCES, make_encoder, make_tokenizer
from hf_xalign.errors import InputError
from hf_xalign.links import align_words

rows = [{"source": s, "target": t, "source_lang": "de", "target_lang": "en"} for s, t, _ in SENTENCES]
data, encoder = Dataset.from_list(rows), {"model": make_encoder(), "tokenizer": make_tokenizer()}
for symmetrization in ("intersection", "grow-diag-final-and"):
    assert any(align_words(data, "encoder", symmetrization, **encoder)["links"])
for aligner in ("fast_align", "eflomal", "ibm1"):
    try:
        align_words(data, aligner)
    except InputError as error:
        assert "sil-thot" in str(error) and "Align with encoder, pharaoh:PATH or dictionary:PATH" in str(error), error
    else:
        raise AssertionError(aligner)
"""


@pytest.mark.slow
def test_the_package_and_the_encoders_links_work_without_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    done = subprocess.run([sys.executable, "-P", "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
