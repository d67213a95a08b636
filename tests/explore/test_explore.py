"""`hf-xalign explore`: what it computes, what it escapes, and the page in a browser."""

import json
import re
import shutil
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np
import pytest
import torch
from datasets import Dataset, concatenate_datasets
from support.card import make_record
from support.families import save_base
from support.launch import STEP
from support.numeric import assert_rounding
from support.tiny import SENTENCES, make_encoder, make_links, make_tokenizer

from hf_xalign.cli.explore import _last_names
from hf_xalign.cli.main import main
from hf_xalign.data.encoding import prompt_of
from hf_xalign.data.sources import builtin_file
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import text_vectors
from hf_xalign.evaluation.similarity import WordSimilarity, word_similarity
from hf_xalign.explore.held_out import HeldOut, frequent_links
from hf_xalign.explore.page import Views, make_page, serve
from hf_xalign.links.frozen import write_links
from hf_xalign.record import write_record

HOSTILE = "<img src=x onerror=\"document.title='hacked'\"> ${document.title='hacked'} {{7*7}} `katze`"
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
FLAGS += " --disable-component-update --disable-sync"


@pytest.fixture(scope="module")
def text():
    """Five distinct pairs, as many as a search shows, the first one twice and the last hostile."""
    pair = {"source": HOSTILE, "target": "the {{dog}}", "source_lang": "de", "target_lang": "en"}
    pair |= {"source_words": ["<b>", "{{hund}}"], "target_words": ["the", "{{dog}}"], "links": [[1, 1]]}
    return concatenate_datasets([make_links(4), make_links(1), Dataset.from_list([pair])])


@pytest.fixture(scope="module")
def stages(text):
    return {name: HeldOut(make_encoder(seed), make_tokenizer(), text) for seed, name in enumerate(("before", "after"))}


@pytest.fixture(scope="module")
def views(stages, text):
    return Views(stages, text)


def test_a_word_is_the_mean_of_its_occurrences_and_never_its_own_neighbour(stages, text):
    before = stages["before"]
    found = text_vectors(make_encoder(0), make_tokenizer(), text)["de"]["target"]["mean"]
    words = [word for sentence in text["target_words"][:] for word in sentence]
    at = [row for row, word in enumerate(words) if word == "dog"]
    own = before.words["en"]
    assert own.counts[own.rows["dog"]] == len(at) == 3
    assert_rounding(own.vectors[own.rows["dog"]], found.vectors[at, 0].mean(0), operations=STEP)
    near = before.neighbours("dog", "en", n=1000)
    assert dict(zip(near, map(len, near.values()))) == {"de": len(before.words["de"].rows), "en": len(own.rows) - 1}
    for entries in near.values():
        assert "dog" not in [one.text for one in entries]
        assert [one.score for one in entries] == sorted((one.score for one in entries), reverse=True)


def test_a_word_that_the_text_lacks_is_encoded_alone(stages):
    own = stages["before"].words["de"]
    assert "zeigt" not in own.rows and stages["before"].neighbours("zeigt", "de", 3)["en"]
    for empty in ("", "\u200b"):
        with pytest.raises(InputError, match="has no word"):
            stages["before"].neighbours(empty, "de")


def test_search_ranks_by_cosine_and_leaves_the_sentence_itself_out(stages):
    before, (sentence, partner, _) = stages["before"], SENTENCES[1]
    found = before.search(sentence, "de", n=1000)
    assert sentence not in [one.text for one in found["de"]] and partner in [one.text for one in found["en"]]
    rows, vectors = before.sentences["en"].rows, torch.nn.functional.normalize(before.sentences["en"].vectors, dim=1)
    own = before.sentences["de"]
    query = torch.nn.functional.normalize(own.vectors[own.rows[sentence]], dim=0)
    for one in found["en"]:
        assert_rounding(one.score, vectors[rows[one.text]] @ query, STEP, scale=1, dtype=torch.float32)
    assert before.sentences["de"].counts[before.sentences["de"].rows[SENTENCES[0][0]]] == 2
    with pytest.raises(InputError, match="the sentence is empty"):
        before.search("", "de")


def test_links_are_mutual_in_the_matrix_that_is_shown(stages):
    source, target, _ = SENTENCES[6]
    similarity, links = stages["after"].compare(source, target, "de", "en")
    assert np.array_equal(similarity.values, word_similarity(make_encoder(1), make_tokenizer(), source, target).values)
    rows, columns = similarity.values.argmax(1), similarity.values.argmax(0)
    assert links == [[i, j] for i, j in enumerate(rows.tolist()) if columns[j] == i] and links


def test_the_plane_keeps_distances_as_far_as_two_axes_can(stages, text):
    known = list(stages.values())
    pairs = frequent_links(text, "de", 4, known)
    assert pairs[0] in [("hund", "dog"), ("die", "the"), ("katze", "cat")] and len(pairs) == 4
    assert len({word for word, _ in pairs}) == len({word for _, word in pairs}) == 4
    plane = stages["before"].plane(pairs, "de", "en")
    assert plane.points.shape == (2, 4, 2) and 0 < plane.variance <= 1 and 0 <= plane.retrieval <= 1
    two = stages["before"].plane(pairs[:1] * 2, "de", "en")  # two points only: one axis holds everything
    vectors = [stages["before"].words[code].vectors for code in ("de", "en")]
    ends = [stages["before"].words[code].rows[word] for code, word in zip(("de", "en"), pairs[0])]
    unit = [torch.nn.functional.normalize(side[end], dim=0) for side, end in zip(vectors, ends)]
    assert_rounding(two.variance, 1.0, STEP, dtype=torch.float32)
    distance = np.linalg.norm(two.points[0, 0] - two.points[1, 0])
    assert_rounding(distance, (unit[0] - unit[1]).norm(), STEP, scale=2, dtype=torch.float32)


def test_texts_are_escaped(views):
    shown = [views.compare(HOSTILE, "the dog", "de", "en"), views.search("the dog", "de"), views.heading(HOSTILE, "")]
    shown += [views.neighbours("hund", "de"), views.plane("de", 30)]
    for html in shown:
        assert "<img" not in html
    assert "&lt;img" in shown[1] and "{{hund}}" in shown[4]


def test_translations_of_the_text_are_underlined(views):
    source, target, _ = SENTENCES[1]
    underlined = re.compile(r'class="xa-partner" dir="auto">([^<]+)<')
    assert set(underlined.findall(views.search(f" {source} ", "de"))) <= {target}
    assert set(underlined.findall(views.neighbours("dog", "en"))) <= {"hund"}
    assert "Underlined" not in views.search("neu", "de") and "encoded alone" in views.neighbours("neu", "de")


def test_what_cannot_be_shown_is_a_line_that_says_why(views):
    for html, said in (
        (views.search(" ", "de"), "the sentence is empty"),
        (views.compare("", "the", "de", "en"), "has no words"),
        (views.neighbours("", "de"), "has no word"),
    ):
        assert 'class="xa-error"' in html and said in html


def test_a_pair_of_the_text_is_drawn(views):
    source, target, *languages = views.draw_pair("de")
    assert (source, target) in [row[:2] for row in SENTENCES] and languages == ["de", "en"]
    assert views.draw_pair("en")[2:] == ("de", "en") and views.frequent_word("de") in ("katze", "hund")


def test_a_page_without_gradio_says_how_to_get_it(views, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(InputError, match=r'pip install "hf_xalign\[app\]"'):
        make_page(views, "title", "about")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, text):
    found = tmp_path_factory.mktemp("explore")
    for seed, name in enumerate(("base", "run")):
        save_base("bert", found / name, seed=seed)
    write_record(found / "run", make_record(base_model={"name": str(found / "base"), "hub_id": None}))
    write_links(text, found / "run" / "eval_links.jsonl")
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
    assert "6 pairs" in shown and 'class="xa-matrix"' in shown
    # Another model, base and text; a limit for each language.
    rows = builtin_file("builtin:de", "test").read_text("utf-8").replace('"source_lang": "de"', '"source_lang": "nl"')
    (folder / "nl.jsonl").write_text(rows, "utf-8")
    text = ["--data", "builtin:de", f"nl={folder / 'nl.jsonl'}", "--max_pairs", "30"]
    assert main(["explore", str(folder / "base"), "--base", run, *text, "--device", "cpu"]) == 0
    shown = "".join(str(one["props"].get("value")) for one in served[1][0].config["components"])
    assert "nl: 30 pairs of builtin:de nl=nl.jsonl; " in shown and "de: 30 pairs" in shown
    assert str(folder) not in shown


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (None, "Model: run."),
        ({"base_model": {"name": "new", "hub_id": None}}, "Model: run."),
        ({"base_model": {"name": "gone/away", "hub_id": None}}, "Model: run."),
        ({"method": "continual"}, "Before: base. After: run."),
        ({"method": "ppa", "settings": {}}, "Before: base. After: run."),
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
    assert shown.count('class="xa-matrix"') == 1 + ("Before" in told)


def test_layer_and_prompt_are_the_runs(folder, tmp_path, served, monkeypatch):
    shutil.copytree(folder / "run", tmp_path / "run")
    given = make_record(base_model={"name": str(folder / "base"), "hub_id": None})
    given |= {"method": "mapping", "settings": {"layers": [0, 1], "prompt": "the "}}
    write_record(tmp_path / "run", given)
    found = []
    monkeypatch.setattr(
        "hf_xalign.explore.held_out.HeldOut.__init__",
        lambda self, model, tokenizer, text, *, layer, desc: found.append((prompt_of(tokenizer), layer)) or 1 / 0,
    )
    assert main(["explore", str(tmp_path / "run"), "--device", "cpu"]) != 0
    assert found == [("the ", 1)]


def test_a_folder_without_a_model_is_refused(folder, tmp_path, capsys):
    assert main(["explore", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
    write_record(tmp_path, {**make_record(), "maps": {"files": {"de": "maps/de.safetensors"}}})
    assert main(["explore", str(tmp_path)]) == 2
    assert "has maps between two spaces" in capsys.readouterr().err


def test_colors_are_what_a_word_chooses_not_how_large_all_cosines_are():
    low = WordSimilarity(["a", "b"], ["x", "y", "z"], np.array([[0.1, 0.3, np.nan], [np.nan] * 3], np.float32))
    high = low._replace(values=low.values + 0.6)
    assert_rounding(low.choices()[0, 1], 1 / (1 + np.exp(-0.2 / 0.05)), STEP, scale=20, dtype=torch.float32)
    assert np.allclose(low.choices(), high.choices(), equal_nan=True, atol=1e-5)
    assert np.isnan(low.choices()[1]).all()


@pytest.fixture(scope="module")
def server(views):
    """The page on a free port of the loopback: its address."""
    pytest.importorskip("gradio", reason='gradio is not installed: pip install "hf_xalign[app]"')
    page = make_page(views, "title", "about")
    yield urlsplit(serve(page, "127.0.0.1", None))
    page.close(verbose=False)


def ask(server, method, path, headers=()):
    """Ask the server without sending a body; return the status and the headers of CORS."""
    connection = HTTPConnection(server.hostname, server.port, timeout=30)
    # Names are looked up when they are used: `{port}` is the server's.
    sent = {name: value.format(port=server.port) for name, value in dict(headers).items()}
    connection.request(method, path, headers=sent)
    with connection.getresponse() as response:
        return response.status, [name for name in response.headers if name.lower().startswith("access-control")]


BODY = {"Content-Type": "multipart/form-data; boundary=x", "Content-Length": "300000000"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 200),
        ("GET", "/config", {"Host": "LocalHost:{port}", "Origin": "http://localhost:{port}"}, 200),
        ("GET", "/", {"Host": "[::1]:{port}"}, 200),
        ("GET", "/", {"Host": "rebound.example:{port}"}, 421),
        ("GET", "/", {"Host": "127.0.0.1:1"}, 421),
        ("GET", "/", {"Host": "127.0.0.1"}, 421),
        ("GET", "/", {"Host": "me@127.0.0.1:{port}"}, 421),
        ("GET", "/", {"Host": "127.0.0.1:http"}, 421),
        ("GET", "/config", {"Origin": "http://127.0.0.1:1"}, 403),
        ("GET", "/config", {"Origin": "null"}, 403),
        ("GET", "/config", {"Origin": "https://127.0.0.1:{port}"}, 403),
        ("OPTIONS", "/gradio_api/queue/join", {"Origin": "http://localhost:1"}, 403),
        ("POST", "/gradio_api/queue/join", {"Origin": "https://evil.example"}, 403),
        ("POST", "/gradio_api/upload", BODY, 404),
        ("POST", "/gradio_api/upload", BODY | {"Origin": "https://evil.example"}, 403),
        ("POST", "/gradio_api/queue/join", BODY, 413),
        ("POST", "/gradio_api/queue/join", {"Transfer-Encoding": "chunked"}, 413),
        ("POST", "/gradio_api/run/compare", {}, 404),
        ("GET", "/gradio_api/file=" + __file__, {}, 404),
        ("GET", "/gradio_api/proxy=http://127.0.0.1:1/", {}, 404),
        ("GET", "/monitoring", {}, 404),
    ],
)
def test_the_server_answers_the_page_alone(server, method, path, headers, status):
    found, shared = ask(server, method, path, headers)
    assert found == status
    assert not shared or headers.get("Origin") == "http://localhost:{port}"


def test_a_space_is_reached_by_its_own_name_and_a_page_for_all_by_its_address(server, monkeypatch):
    monkeypatch.setenv("SPACE_HOST", "me-run.hf.space")
    for headers, status in (
        ({"Host": "me-run.hf.space", "Origin": "https://me-run.hf.space"}, 200),
        ({"Host": "me-run.hf.space", "X-Forwarded-Host": "run.me.example", "Origin": "https://run.me.example"}, 200),
        ({"Host": "10.20.30.40:7860"}, 200),  # a probe of the Hub's
        ({"Host": "me-run.hf.space", "Origin": "https://other.hf.space"}, 403),
        ({"Host": "me-run.hf.space", "Origin": "http://me-run.hf.space"}, 403),
    ):
        assert ask(server, "GET", "/config", headers)[0] == status
    monkeypatch.delenv("SPACE_HOST")
    from hf_xalign.explore.guard import Guard

    guard = Guard(None, "0.0.0.0")
    for host, known in (("192.0.2.7:80", True), ("192.0.2.7", True), ("192.0.2.8:80", False), ("localhost", True)):
        scope = {"type": "http", "method": "GET", "path": "/", "server": ("192.0.2.7", 80)}
        assert (guard._refusal(scope | {"headers": [(b"host", host.encode())]}) is None) == known


def test_a_text_of_more_than_512_words_is_refused(views):
    for html in (
        views.compare("hund " * 513, "the", "de", "en"),
        views.compare("hund", "the " * 513, "de", "en"),
        views.search("猫" * 513, "de"),
        views.neighbours("a-" * 257, "en"),
    ):
        assert re.fullmatch('<p class="xa-error">this text has 51[34] words, more than the 512 .*</p>', html.strip())
    assert 'class="xa-matrix"' in views.compare("hund " * 512, "the " * 2, "de", "en")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("{}/run", "run"),
        ("FacebookAI/xlm-roberta-base", "FacebookAI/xlm-roberta-base"),
        ("builtin", "builtin"),
        ("fr={}/run,{}/lost/b.tsv", "fr=run,b.tsv"),
        ("owner/text:config", "owner/text:config"),
    ],
)
def test_the_page_shows_last_names(folder, name, shown, monkeypatch):
    monkeypatch.chdir(folder)
    for top in (folder, "."):
        assert _last_names(name.format(top, folder)) == shown


@pytest.fixture
def browser(tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("neither chromium nor google-chrome is installed")
    with playwright.sync_playwright() as running:
        context = running.chromium.launch_persistent_context(tmp_path, executable_path=path, args=FLAGS.split())
        yield context
        context.close()


COMMAND = [sys.executable, "-P", "-c", "from hf_xalign.cli.main import main; main()", "explore", "--device", "cpu"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system tells no peak of memory in /proc")
def test_two_sentences_of_512_words_take_little_memory(folder, tmp_path, capsys):
    """Print the peaks in MB: of the server with its page, and after one answer."""
    for seed, name in enumerate(("base", "run")):
        save_base("bert", tmp_path / name, seed=seed, max_position_embeddings=1100)
    words = [str(tmp_path / "run"), "--base", str(tmp_path / "base"), "--links", str(folder / "run/eval_links.jsonl")]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().split()[1] + "gradio_api/queue"

            def peak():
                status = Path(f"/proc/{process.pid}/status").read_text()
                return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024

            page = peak()
            [number, *_] = [
                one["id"]
                for one in json.load(urlopen(address.replace("gradio_api/queue", "config")))["dependencies"]
                if str(one["api_name"]).startswith("compare")
            ]
            typed = ["hund katze " * 256, "the dog " * 256, "de", "en"]
            body = json.dumps({"data": typed, "fn_index": number, "session_hash": "0"}).encode()
            urlopen(Request(f"{address}/join", body, {"Content-Type": "application/json"})).close()
            answer = next(line for line in urlopen(f"{address}/data?session_hash=0") if b"process_completed" in line)
            with capsys.disabled():
                print(f"\nexplore: {page:.0f} MB, after two sentences of 512 words {peak():.0f} MB")
            assert answer.count(b"<td") >= 2 * 512**2
            assert len(answer) < 12e6 and peak() - page < 150
        finally:
            process.terminate()


@pytest.mark.slow
def test_the_page_in_a_browser(folder, browser):
    words = [*COMMAND, str(folder / "run")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().split()[1]
            drive(browser, address)
        finally:
            process.terminate()


def drive(browser, address):
    page, requested, faults = browser.new_page(), [], []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda fault: faults.append(fault))
    page.goto(address)

    def shown(name):
        page.get_by_role("tab", name=name, exact=True).click()
        return page.get_by_role("tabpanel").filter(visible=True)

    panel = shown("Pair")
    panel.get_by_label("Sentence").fill(HOSTILE)
    panel.get_by_role("button", name="Compare").click()
    panel.get_by_role("rowheader", name="onerror").first.wait_for()
    assert panel.locator(".xa-matrix").count() == 2 and panel.locator("th", has_text="{").count()
    panel.get_by_role("button", name="Another pair").click()
    panel.get_by_role("rowheader", name="onerror").first.wait_for(state="detached")

    panel = shown("Words")
    panel.get_by_label("Word").fill("neu")
    panel.get_by_label("Word").press("Enter")
    panel.get_by_text("it is encoded alone").wait_for()

    panel = shown("Search")
    panel.get_by_label("Sentence").fill("the dog")
    panel.get_by_role("button", name="Find").click()
    panel.get_by_text(HOSTILE, exact=True).first.wait_for()
    panel.get_by_text("the {{dog}}", exact=True).first.wait_for()

    panel = shown("Map")
    panel.locator(".xa-panels circle").first.wait_for()
    assert panel.locator(".xa-panels text", has_text="{{dog}}").count() == 2
    assert panel.locator(".xa-panels circle").count() > 20
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        for name in ("Pair", "Words", "Search", "Map"):
            shown(name)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.title() == "Before and after alignment" and faults == []
    assert [url for url in requested if not url.startswith((address, "data:", "blob:"))] == []
