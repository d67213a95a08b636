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
import torch
import yaml
from packaging.requirements import Requirement

import hf_xalign.metrics
from hf_xalign._version import __version__
from hf_xalign.errors import InputError
from hf_xalign.evaluation.alignment_error import alignment_error_rate
from hf_xalign.evaluation.lexicon import lexicon_induction
from hf_xalign.evaluation.retrieval import word_retrieval
from hf_xalign.evaluation.sentences import sentence_retrieval
from hf_xalign.metrics.app import make_app

FOLDER = Path(hf_xalign.metrics.__file__).parent
NAMES = [
    "alignment_error_rate",
    "bilingual_lexicon_induction",
    "classification_accuracy",
    "embedding_alignment",
    "qa_f1",
    "sentence_retrieval",
    "span_f1",
    "token_f1",
    "transfer_gap",
    "word_retrieval",
]

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
json.dump(result, open(out, "w"))
"""


@pytest.fixture
def gradio():
    return pytest.importorskip("gradio", reason="the apps are pages of gradio: pip install gradio")


@pytest.fixture(scope="module")
def vectors():
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(40, 6, generator=generator) * torch.exp(torch.randn(40, 1, generator=generator))
    return source, source + 0.6 * torch.randn(40, 6, generator=generator)


@pytest.fixture(scope="module")
def seen_by_user(tmp_path_factory, vectors):
    folder = tmp_path_factory.mktemp("user")
    np.savez(folder / "data.npz", source_vectors=vectors[0], target_vectors=vectors[1], ends=[11, 12, 30, 40])
    (folder / "user.py").write_text(USER)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home")}
    for variable in ("HF_MODULES_CACHE", "HF_EVALUATE_CACHE", "PYTHONPATH"):
        environment.pop(variable, None)
    run = subprocess.run(
        [sys.executable, "user.py", str(FOLDER), "data.npz", "out.json"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return json.loads((folder / "out.json").read_text())


def test_examples_of_every_module_run(seen_by_user):
    assert seen_by_user["names"] == seen_by_user["names_by_path"] == NAMES
    assert all(failed == 0 and attempted > 0 for failed, attempted in seen_by_user["doctests"].values())


def test_word_retrieval_is_the_librarys_score(seen_by_user, vectors):
    links = [[n, n] for n in range(40)]
    words = [str(n % 7) for n in range(40)]
    assert seen_by_user["plain"] == word_retrieval(*vectors, links)
    assert seen_by_user["by_path"] == word_retrieval(*vectors, links, similarity="cosine")
    assert seen_by_user["words"] == word_retrieval(
        *vectors, links, source_words=words, target_words=words, k=3, pool="all", legacy=True
    )


def test_alignment_error_rate_is_the_librarys_score(seen_by_user):
    links = [[[0, 0], [1, 2]], []], [[[0, 0], [1, 1]], [[0, 1]]]
    assert seen_by_user["aer"] == alignment_error_rate(*links, [[[1, 2]], []])
    assert seen_by_user["aer_sure"] == alignment_error_rate(*links)


def test_sentence_retrieval_is_the_librarys_score(seen_by_user, vectors):
    assert seen_by_user["sentences"] == sentence_retrieval(*vectors)
    assert seen_by_user["sentences_csls"] == sentence_retrieval(*vectors, similarity="csls", k=3)


def test_lexicon_induction_is_the_librarys_score(seen_by_user, vectors):
    words = [f"s{n}" for n in range(40)], [f"t{n}" for n in range(40)]
    entries = [(f"s{n}", f"t{m}") for n in range(50) for m in (n, n + 1)]
    assert seen_by_user["lexicon"] == lexicon_induction(*vectors, *words, entries)
    assert seen_by_user["lexicon_cosine"] == lexicon_induction(
        *vectors, *words, entries, ks=(2,), similarity="cosine", bootstrap=50, seed=3
    )


def test_unknown_name_lists_the_names():
    with pytest.raises(InputError, match=f"no metric called 'bleu': there are {', '.join(NAMES)}"):
        hf_xalign.metrics.load("bleu")


@pytest.mark.parametrize("name", NAMES)
def test_readme_is_a_space_card(name):
    _, front, body = (FOLDER / name / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    card = yaml.safe_load(front)
    assert card["title"] and {"evaluate", "metric"} <= set(card["tags"])
    assert (card["sdk"], card["app_file"]) == ("gradio", "app.py")
    assert card["python_version"] == "3.11"  # a Space's own is older than this library takes
    for heading in ("Metric description", "Inputs", "Outputs", "Limitations", "Citation"):
        assert f"## {heading}\n" in body


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_a_whole_space(name):
    assert {path.name for path in (FOLDER / name).iterdir() if path.is_file()} == {
        "README.md",
        "app.py",
        "requirements.txt",
        f"{name}.py",
    }
    [line] = (FOLDER / name / "requirements.txt").read_text().splitlines()
    requirement = Requirement(line)
    assert requirement.name == "hf_xalign" and requirement.specifier.contains(__version__, prereleases=True)


def test_an_app_without_gradio_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(InputError, match="pip install gradio"):
        make_app(FOLDER / "span_f1" / "span_f1.py")


@pytest.mark.parametrize("name", NAMES)
def test_the_app_is_the_metrics_own(name, gradio):
    demo = runpy.run_path(str(FOLDER / name / "app.py"))["demo"]
    assert isinstance(demo, gradio.Interface)
    assert demo.title.lower().replace(" ", "_") == name
    [box] = demo.input_components
    assert json.loads(box.value)  # names the inputs
    assert demo.article.lower().startswith(f"\n# {demo.title.lower()}\n")


def test_an_app_answers_again_after_a_refusal(gradio):
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


def test_an_app_is_served(gradio):
    """By a real server on loopback, to the client that programs use for Spaces."""
    import gradio_client

    demo = make_app(FOLDER / "transfer_gap" / "transfer_gap.py")
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True)
    try:
        given = json.dumps({"supervised": [0.9], "zero_shot": [0.8]})
        found = gradio_client.Client(url, verbose=False).predict(given, api_name="/compute")
    finally:
        demo.close()
    assert found["delta"] == pytest.approx(0.1)
