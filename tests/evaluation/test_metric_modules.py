"""The `evaluate` modules, loaded as a user does: fresh process outside the checkout, offline, empty cache."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement
from support.nearest import vectors

import hf_xalign.metrics
from hf_xalign._version import __version__
from hf_xalign.errors import InputError
from hf_xalign.evaluation.alignment_error import alignment_error_rate
from hf_xalign.evaluation.embedding_alignment import alignment_of_entries
from hf_xalign.evaluation.lexicon import lexicon_induction
from hf_xalign.evaluation.retrieval import word_retrieval
from hf_xalign.evaluation.sentences import sentence_retrieval
from hf_xalign.evaluation.transfer import transfer_gap
from hf_xalign.metrics.app import make_app

FOLDER = Path(hf_xalign.metrics.__file__).parent
NAMES = hf_xalign.metrics.names()  # test_bad_inputs spells them out

USER = """
import doctest, json, sys
import evaluate
import numpy as np
from hf_xalign import metrics

folder, data, out = sys.argv[1:]
given = np.load(data)
ends = given["ends"].tolist()
pairs = [slice(a, b) for a, b in zip([0, *ends], ends)]
columns = {side: [given[side][at] for at in pairs] for side in ("source_vectors", "target_vectors")}
columns["links"] = [[[i, i] for i in range(at.stop - at.start)] for at in pairs]
words = [[str(n % 7) for n in range(at.start, at.stop)] for at in pairs]
result = {"names": metrics.names(), "doctests": {}, "names_by_path": []}

for name in metrics.names():
    module = metrics.load(name)
    tests = doctest.testmod(sys.modules[type(module).__module__])
    result["doctests"][name] = [tests.failed, tests.attempted]
    result["names_by_path"].append(evaluate.load(f"{folder}/{name}").name)

retrieval = metrics.load("word_retrieval")
result["plain"] = retrieval.compute(**columns)
lists = {name: [np.asarray(row).tolist() for row in column] for name, column in columns.items()}
for start in (0, 2):
    retrieval.add_batch(**{name: column[start : start + 2] for name, column in lists.items()})
result["words"] = retrieval.compute(source_words=words, target_words=words, k=3, pool="all", legacy=True)
by_path = evaluate.load(f"{folder}/word_retrieval")
result["by_path"] = by_path.compute(**columns, similarity="cosine")

links = {"predictions": [[[0, 0], [1, 2]], []], "sure": [[[0, 0], [1, 1]], [[0, 1]]]}
aer = evaluate.load(f"{folder}/alignment_error_rate")
result["aer"] = aer.compute(**links, possible=[[[1, 2]], []])
result["aer_sure"] = aer.compute(**links)

vectors = {side: given[side] for side in ("source_vectors", "target_vectors")}
sentences = metrics.load("sentence_retrieval")
result["sentences"] = sentences.compute(**vectors)
for start in (0, 25):
    sentences.add_batch(**{name: side[start : start + 25].tolist() for name, side in vectors.items()})
result["sentences_csls"] = sentences.compute(similarity="csls", k=3)

lexicon = metrics.load("bilingual_lexicon_induction")
entries = [(f"s{n}", f"t{m}") for n in range(50) for m in (n, n + 1)]
vocabularies = {f"{side}_words": [f"{side[0]}{n}" for n in range(40)] for side in ("source", "target")}
result["lexicon"] = lexicon.compute(entries=entries, **vectors, **vocabularies)
for part in (entries[:60], entries[60:]):
    lexicon.add_batch(entries=part)
options = {"ks": [2], "similarity": "cosine", "bootstrap": 50, "seed": 3}
result["lexicon_cosine"] = lexicon.compute(**vectors, **vocabularies, **options)

alignment = metrics.load("embedding_alignment")
entries = [[n, n] for n in range(30)] + [[n, n + 1] for n in range(10)]
result["alignment"] = alignment.compute(entries=np.array(entries), **vectors)
for part in (entries[:30], entries[30:]):
    alignment.add_batch(entries=part)
options = {"similarity": "csls", "k": 3, "bootstrap": 50, "seed": 2}
result["alignment_csls"] = alignment.compute(**vectors, candidates=list(range(40)), **options)

gap = metrics.load("transfer_gap")
result["gap"] = gap.compute(supervised=[0.9, 0.8], zero_shot=[0.5, 0.6])
for n in range(4):
    gap.add(supervised=1, zero_shot=n % 2)
result["gap_interval"] = gap.compute(bootstrap=100, seed=1)
json.dump(result, open(out, "w"))
"""


@pytest.fixture
def gradio():
    return pytest.importorskip("gradio", reason="the apps are pages of gradio: pip install gradio")


@pytest.mark.slow
def test_modules_load_offline_and_give_the_librarys_scores(tmp_path):
    sides = source, target = vectors(0, 40, dim=6), vectors(0, 40, dim=6) + 0.6 * vectors(1, 40, dim=6)
    np.savez(tmp_path / "data.npz", source_vectors=source, target_vectors=target, ends=[11, 12, 30, 40])
    (tmp_path / "user.py").write_text(USER)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    for variable in ("HF_MODULES_CACHE", "HF_EVALUATE_CACHE", "PYTHONPATH"):
        environment.pop(variable, None)
    command = [sys.executable, "user.py", str(FOLDER), "data.npz", "out.json"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    seen = json.loads((tmp_path / "out.json").read_text())
    assert seen.pop("names") == seen.pop("names_by_path") == NAMES
    doctests = seen.pop("doctests")
    assert set(doctests) == set(NAMES) and all(failed == 0 < attempted for failed, attempted in doctests.values())

    links, words = [[n, n] for n in range(40)], [str(n % 7) for n in range(40)]
    typed = {"source_words": words, "target_words": words, "k": 3, "pool": "all", "legacy": True}
    pairs = [[[0, 0], [1, 2]], []], [[[0, 0], [1, 1]], [[0, 1]]]
    vocabularies = [f"s{n}" for n in range(40)], [f"t{n}" for n in range(40)]
    entries = [(f"s{n}", f"t{m}") for n in range(50) for m in (n, n + 1)]
    by_cosine = {"ks": (2,), "similarity": "cosine", "bootstrap": 50, "seed": 3}
    tokens = [[n, n] for n in range(30)] + [[n, n + 1] for n in range(10)]
    wide = alignment_of_entries(*sides, tokens, range(40), similarity="csls", k=3)
    assert seen == {
        "plain": word_retrieval(*sides, links),
        "by_path": word_retrieval(*sides, links, similarity="cosine"),
        "words": word_retrieval(*sides, links, **typed),
        "aer": alignment_error_rate(*pairs, [[[1, 2]], []]),
        "aer_sure": alignment_error_rate(*pairs),
        "sentences": sentence_retrieval(*sides),
        "sentences_csls": sentence_retrieval(*sides, similarity="csls", k=3),
        "lexicon": lexicon_induction(*sides, *vocabularies, entries),
        "lexicon_cosine": lexicon_induction(*sides, *vocabularies, entries, **by_cosine),
        "alignment": alignment_of_entries(*sides, tokens).scores(),
        "alignment_csls": wide.scores(bootstrap=50, seed=2),
        "gap": transfer_gap([0.9, 0.8], [0.5, 0.6]),
        "gap_interval": transfer_gap([1.0] * 4, [0.0, 1.0, 0.0, 1.0], bootstrap=100, seed=1),
    }
    assert seen["alignment_csls"] != wide.scores(bootstrap=50), "the seed must make a difference"


def test_a_folder_is_a_whole_space():
    for name in NAMES:
        _, front, body = (FOLDER / name / "README.md").read_text(encoding="utf-8").split("---\n", 2)
        card = yaml.safe_load(front)
        assert card["title"] and {"evaluate", "metric"} <= set(card["tags"]), name
        assert (card["sdk"], card["app_file"]) == ("gradio", "app.py"), name
        assert card["python_version"] == "3.11", name  # a Space's own is older than this library takes
        for heading in ("Metric description", "Inputs", "Outputs", "Limitations", "Citation"):
            assert f"## {heading}\n" in body, name
        files = {path.name for path in (FOLDER / name).iterdir() if path.is_file()}
        assert files == {"README.md", "app.py", "requirements.txt", f"{name}.py"}
        [line] = (FOLDER / name / "requirements.txt").read_text().splitlines()
        requirement = Requirement(line)
        assert requirement.name == "hf_xalign" and requirement.specifier.contains(__version__, prereleases=True)


def test_an_app_without_gradio_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(InputError, match="pip install gradio"):
        make_app(FOLDER / "span_f1" / "span_f1.py")


def check_app(name, gradio):
    demo = runpy.run_path(str(FOLDER / name / "app.py"))["demo"]
    assert isinstance(demo, gradio.Interface)
    assert demo.title.lower().replace(" ", "_") == name
    [box] = demo.input_components
    assert json.loads(box.value), f"{name}: names the inputs"
    assert demo.article.lower().startswith(f"\n# {demo.title.lower()}\n"), name


def test_an_app_is_the_metrics_own_and_answers_after_a_refusal(gradio):
    check_app("span_f1", gradio)
    compute = make_app(FOLDER / "span_f1" / "span_f1.py").fn
    given = {"predictions": [["B-a", "O"]], "references": [["B-a", "B-b"]]}
    for wrong, said in [
        ("[", "Expecting value"),
        ("[1]", "must be a mapping"),
        (json.dumps({**given, "references": [["B-a"]]}), "2 predicted labels for 1 words"),
        (json.dumps({**given, "more": 1}), "unexpected keyword"),
    ]:
        with pytest.raises(gradio.Error, match=said):
            compute(wrong)
        assert compute(json.dumps(given))["recall"] == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*NAMES} - {"span_f1"}))
def test_every_app_is_the_metrics_own(name, gradio):
    check_app(name, gradio)


@pytest.mark.slow
def test_an_app_is_served(gradio):
    """By a real server on loopback, to the client that programs use for Spaces."""
    import gradio_client

    demo = make_app(FOLDER / "transfer_gap" / "transfer_gap.py")
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True)
    try:
        given = {"supervised": [0.9], "zero_shot": [0.8]}
        found = gradio_client.Client(url, verbose=False).predict(json.dumps(given), api_name="/compute")
    finally:
        demo.close()
    assert found == transfer_gap([0.9], [0.8])
