"""`hf-xalign explore`: what it computes, what it escapes, and whom its server answers."""

import re
import runpy
import shutil
from http.client import HTTPConnection
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
import yaml
from datasets import Dataset, concatenate_datasets
from support.card import make_record
from support.families import save_base
from support.launch import STEP
from support.numeric import assert_rounding
from support.tiny import SENTENCES, make_encoder, make_links, make_tokenizer

from hf_xalign.cli.main import main
from hf_xalign.data.sources import builtin_file
from hf_xalign.evaluation.scores import text_vectors
from hf_xalign.evaluation.similarity import WordSimilarity
from hf_xalign.explore.held_out import HeldOut
from hf_xalign.explore.page import draw, make_page, serve
from hf_xalign.links.frozen import keep_links
from hf_xalign.record import write_record

HOSTILE = "<img src=x onerror=\"document.title='hacked'\"> ${document.title='hacked'} {{7*7}} `katze`"
SPACE = Path(__file__).parents[2] / "examples/space"


@pytest.fixture(scope="module")
def text():
    """Five distinct pairs, as many as a search shows, the first one twice and the last hostile."""
    pair = {"source": HOSTILE, "target": "the {{dog}}", "source_lang": "de", "target_lang": "en"}
    pair |= {"source_words": ["<b>", "{{hund}}"], "target_words": ["the", "{{dog}}"], "links": [[1, 1]]}
    return concatenate_datasets([make_links(4), make_links(1), Dataset.from_list([pair])])


@pytest.fixture(scope="module")
def stages(text):
    return {name: HeldOut(make_encoder(seed), make_tokenizer(), text) for seed, name in enumerate(("before", "after"))}


def test_a_word_is_the_mean_of_its_occurrences_and_never_its_own_neighbour(stages, text):
    before = stages["before"]
    found = text_vectors(make_encoder(0), make_tokenizer(), text)["de"]["target"]["mean"]
    words = [word for sentence in text["target_words"][:] for word in sentence]
    at = [row for row, word in enumerate(words) if word == "dog"]
    own = before.words["en"]
    assert_rounding(own.vectors[own.texts.index("dog")], found.vectors[at, 0].mean(0), operations=STEP)
    near = before.neighbours("dog", "en", n=1000)
    assert {code: len(found) for code, found in near.items()} == {
        "de": len(before.words["de"].texts),
        "en": len(own.texts) - 1,
    }
    for found in near.values():
        scores = [score for _, score in found]
        assert "dog" not in dict(found) and scores == sorted(scores, reverse=True)
    assert "zeigt" not in before.words["de"].texts and before.neighbours("zeigt", "de", 3)["en"]  # encoded alone


def test_search_ranks_by_cosine_and_leaves_the_sentence_itself_out(stages):
    before, (sentence, partner, _) = stages["before"], SENTENCES[1]
    found = before.search(sentence, "de", n=1000)
    assert sentence not in dict(found["de"]) and partner in dict(found["en"])
    unit = torch.nn.functional.normalize
    own, english = before.sentences["de"], before.sentences["en"]
    query = unit(own.vectors[own.texts.index(sentence)], dim=0)
    for other, score in found["en"]:
        wanted = unit(english.vectors[english.texts.index(other)], dim=0) @ query
        assert_rounding(score, wanted, STEP, scale=1, dtype=torch.float32)
    assert own.texts.count(SENTENCES[0][0]) == 1


def test_texts_are_escaped(stages):
    shown = [
        draw(stages, HeldOut.compare, HOSTILE, "de", "the dog", "en"),
        draw(stages, HeldOut.search, "the dog", "en"),
    ]
    shown += [draw(stages, HeldOut.neighbours, "hund", "de")]
    for html in shown:
        assert "<img" not in html and "<b>&" not in html
    assert "&lt;img" in shown[1] and "{{dog}}" in shown[2] and "2px solid #D55E00" in shown[0]


def test_what_cannot_be_shown_is_a_line_that_says_why(stages):
    for html in (draw(stages, HeldOut.search, " ", "de"), draw(stages, HeldOut.compare, "", "de", "the", "en")):
        assert html.startswith("<p><b>") and "the text is empty" in html


@pytest.fixture(scope="module")
def folder(tmp_path_factory, text):
    found = tmp_path_factory.mktemp("explore")
    for seed, name in enumerate(("base", "run")):
        save_base("bert", found / name, seed=seed)
    write_record(found / "run", make_record(base_model={"name": str(found / "base"), "hub_id": None}))
    keep_links(text, found / "run")
    return found


@pytest.fixture
def served(monkeypatch):
    gradio = pytest.importorskip("gradio", reason='gradio is not installed: pip install "hf_xalign[app]"')
    calls = []

    def launch(page, **settings):
        calls.append((page, settings))
        return None, f"http://{settings['server_name']}:1/", None

    monkeypatch.setattr(gradio.Blocks, "launch", launch)
    monkeypatch.setattr(gradio.Blocks, "block_thread", lambda page: None)
    return calls


def test_the_command_reads_the_run_and_stays_on_this_machine(folder, served, capsys):
    run = str(folder / "run")
    assert main(["explore", run, "--device", "cpu"]) == 0
    assert capsys.readouterr().out == "open http://127.0.0.1:1/ (Ctrl-C ends it)\n"
    [(page, settings)] = served
    assert settings["server_name"] == "127.0.0.1" and settings["share"] is False
    shown = "".join(str(one["props"].get("value")) for one in page.config["components"])
    assert "Before: base. After: run." in shown and str(folder) not in shown
    assert "5 pairs" in shown and "<table>" in shown  # one of the six repeats a sentence
    # Another model, base and text; a limit for each language.
    rows = builtin_file("builtin:de", "test").read_text("utf-8").replace('"source_lang": "de"', '"source_lang": "lb"')
    (folder / "lb.jsonl").write_text(rows, "utf-8")
    text = ["--data", "builtin:de", f"lb={folder / 'lb.jsonl'}", "--max_pairs", "30"]
    assert main(["explore", str(folder / "base"), "--base", run, *text, "--device", "cpu"]) == 0
    shown = "".join(str(one["props"].get("value")) for one in served[1][0].config["components"])
    assert "lb: 30 pairs of builtin:de lb=lb.jsonl; " in shown and "de: 30 pairs" in shown
    assert str(folder) not in shown


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (None, "Model: run."),
        ({"base_model": {"name": "gone/away", "hub_id": None}}, "Model: run."),
        ({"method": "continual"}, "Before: base. After: run."),
    ],
)
def test_every_model_is_shown_without_a_flag(folder, tmp_path, served, monkeypatch, record, told):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("hf_xalign.cli.pairs._BUILTIN_TEXT", ("builtin:de",))  # the tokenizer knows no Bengali
    shutil.copytree(folder / "run", tmp_path / "run", ignore=shutil.ignore_patterns("results.json", "*.jsonl"))
    if record is not None:
        given = make_record(base_model={"name": str(folder / "base"), "hub_id": None})
        write_record(
            tmp_path / "run",
            {**given, "languages": {"pivot": "en", "others": ["de"]}, "data": {"train": [], "eval": []}, **record},
        )
    assert main(["explore", str(tmp_path / "run"), "--device", "cpu", "--max_pairs", "20"]) == 0
    shown = "".join(str(one["props"].get("value")) for one in served[-1][0].config["components"])
    assert told in shown and "de: 20 pairs of builtin:de; " in shown
    assert shown.count("<table>") == 1 + ("Before" in told)


def test_colors_are_what_a_word_chooses_not_how_large_all_cosines_are():
    low = WordSimilarity(["a", "b"], ["x", "y", "z"], np.array([[0.1, 0.3, np.nan], [np.nan] * 3], np.float32))
    high = low._replace(values=low.values + 0.6)
    assert_rounding(low.choices()[0, 1], 1 / (1 + np.exp(-0.2 / 0.05)), STEP, scale=20, dtype=torch.float32)
    assert np.allclose(low.choices(), high.choices(), equal_nan=True, atol=1e-5)
    assert np.isnan(low.choices()[1]).all()


@pytest.fixture(scope="module")
def server(stages, text):
    """The page on a free port of the loopback: its address."""
    pytest.importorskip("gradio", reason='gradio is not installed: pip install "hf_xalign[app]"')
    page = make_page(stages, text, "title", "about")
    yield urlsplit(serve(page, "127.0.0.1", None))
    page.close(verbose=False)


def ask(server, method, path, **headers):
    """Return the status, the origin that may read the answer, and the answer."""
    connection = HTTPConnection(server.hostname, server.port, timeout=30)
    connection.request(method, path, headers=headers)
    with connection.getresponse() as response:
        return response.status, response.headers.get("Access-Control-Allow-Origin"), response.read().decode()


def test_the_server_answers_its_own_page(server):
    status, _, page = ask(server, "GET", "/")
    assert status == 200 and '"stylesheets":[]' in page  # nothing is loaded from elsewhere
    assert re.findall(r'(?:src|href)="((?:https?:)?//[^"]+)', page) == []
    for origin in ("https://evil.example", "null"):  # no other page may read an answer
        assert ask(server, "GET", "/config", Origin=origin)[1] is None
    for path in (f"/gradio_api/file={__file__}", "/gradio_api/file=/etc/hostname", "/gradio_api/proxy=http://a.b/"):
        assert ask(server, "GET", path)[0] in (400, 403, 404)
    assert ask(server, "GET", "/monitoring")[0] in (403, 404)


def test_the_space_of_the_examples_compares_two_sentences(folder, monkeypatch):
    pytest.importorskip("gradio", reason='gradio is not installed: pip install "hf_xalign[app]"')
    monkeypatch.setenv("BASE", str(folder / "base"))
    monkeypatch.setenv("MODEL", str(folder / "run"))
    app = runpy.run_path(str(SPACE / "app.py"))
    assert [example[1] for example in app["EXAMPLES"]] == ["bn", "de", "vi"] and len(app["demo"].input_components) == 4
    shown = app["compare"](HOSTILE, "de", "the dog", "en")
    assert shown.count("<table>") == 2 and "<img" not in shown


def test_the_card_of_the_space():
    card = yaml.safe_load((SPACE / "README.md").read_text("utf-8").split("---\n")[1])
    assert (card["sdk"], card["sdk_version"]) == ("gradio", version("gradio"))
    assert len(card["short_description"]) <= 60 and (SPACE / card["app_file"]).exists()  # the Hub's limit
    assert (SPACE / "requirements.txt").read_text("utf-8").startswith("hf_xalign[demo]")
