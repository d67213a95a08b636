"""The HTML report: what a folder holds is on the page, hostile text stays text, nothing is loaded from elsewhere."""

import copy
import json
import re
from html.parser import HTMLParser

from support.card import EVIL, make_record
from support.results import make_grid

from hf_xalign.record import write_record
from hf_xalign.report import charts, render_report, write_report
from hf_xalign.tables import score_rows

VOID = {"meta", "br", "hr"}
SVG_EMPTY = {"rect", "line", "polyline", "circle"}


class Page(HTMLParser):
    """Parsed page. Fails where a tag is not closed, or closed out of order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text = [], set(), [], ""
        self.feed(text)
        self.close()
        assert self.open == []
        self.words = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in SVG_EMPTY
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.text += " " * (tag in {"td", "th", "dt", "dd"})  # what stands in one cell is not glued to the next

    def handle_data(self, data):
        self.text += data

    def check_loads_nothing(self):
        """Require that no tag runs or loads anything, and no attribute names another place."""
        assert not self.tags & {"script", "link", "iframe", "img", "image", "object", "embed", "a", "base", "use"}
        for tag, name, value in self.attributes:
            assert not name.startswith("on") and name not in {"src", "href", "xlink:href", "srcset", "action", "data"}
            assert "url(" not in (value or "") and "://" not in (value or ""), (tag, name, value)


def make_log():
    rows = [{"step": n, "loss": 3.0 / n, "loss/align": 2.0 / n, "learning_rate": 1e-4} for n in (10, 20, 30)]
    rows.insert(2, {"step": 20, "eval_retrieval": 0.5, "eval_de_retrieval_mean": 0.5, "eval_runtime": 3.0})
    rows.append({"step": 30, "eval_retrieval": 0.75, "eval_de_retrieval_mean": 0.75, "eval_runtime": 3.0})
    return [*rows, {"step": 30, "loss": None}, {"step": "x", "loss": 1.0}, 7]


def make_retrievals(word="katze"):
    before = {"word": "dog", "right": False, "elsewhere": True}
    after = {"word": "cat", "right": True, "elsewhere": False}
    example = {"source_words": ["die", word, "schläft"], "word": 1, "target_words": ["the", "cat", "sleeps"]}
    examples = [{**example, "linked": "cat", "before": before, "after": after}]
    own = {"queries": 1200, "gained": 30, "lost": 4, "other": 12, "examples": examples}
    return {"seed": 5, "languages": {"de": own}}


def fill(folder, record=None, *, log=None, step=30, **files):
    if record is not None or not (folder / "results.json").exists():
        write_record(folder, make_record() if record is None else record)
    if log is not None:
        files[f"checkpoint-{step}/trainer_state"] = {"log_history": log}
    for name, content in files.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_everything_of_the_folder_is_on_the_page(tmp_path):
    record = make_record()
    folder = fill(tmp_path, record, log=make_log(), distances=make_grid(), retrievals=make_retrievals())
    path = write_report(folder)
    assert path == folder / "report.html" and path.read_text("utf-8") == render_report(folder)
    page = Page(path.read_text("utf-8"))
    page.check_loads_nothing()
    for said in (
        *(" ".join(row[1:]) for row in score_rows(record)),
        "From checkpoint-30/trainer_state.json, up to step 30.",
        "de_retrieval_mean",
        "base, de: l2, layer -1",
        "AUC 0.800, 10 pairs",
        "1,200 linked words: 30 are right only after training, 4 were right only before, 12 are wrong",
        "die katze schläft the cat sleeps cat dog (in another sentence) cat",
        record["objective"],
        "learning_rate 5e-05",
        "hf-xalign train fao --config fao_builtin --output_dir 'out dir'",
        f"{record['git']['commit']} with uncommitted changes",
        "Some CPU (R), 2 cores, 16 GiB, no GPU",
        "torch 2.13.0",
        "@inproceedings{cao2020",
    ):
        assert said in page.words, said
    assert "eval_runtime" not in page.words and "wandb" not in page.words
    for step in (9, 100, 20):
        fill(folder, log=[{"step": 1, "loss": 2.0}, {"step": step, "loss": 1.0}], step=step)
    (folder / "checkpoint-old").mkdir()
    assert "checkpoint-100/trainer_state.json, up to step 100" in Page(render_report(folder)).words, "the last one"


def test_records_of_every_kind(tmp_path):
    record = make_record(
        adapter={"peft_type": "XALIGN", "languages": None, "pivot": None},
        intervals={"before": {}, "after": {"de": {"bli_p@1_to_pivot": [0.4, 0.5]}}},
        losses={"before": {"de": 3.5}, "after": {"de": 2.25}},
    )
    record["scores"]["untrained"] = {"de": {"retrieval_last": 0.114}}
    text = Page(render_report(fill(tmp_path, record))).words
    for said in (
        "metric before untrained after change",
        "retrieval_last - 11.4 - -",
        "bli_p@1_to_pivot - 40.0 to 50.0",
        "de 3.5000 2.2500",
        "The folder holds no log of training steps",
        "The folder holds no retrievals.json: hf-xalign report FOLDER --examples 20 writes it.",
    ):
        assert said in text, said
    for name in ("trainable", "adapter"):
        del record[name]
    record |= {"paper": None, "git": None, "objective": None, "scores": {"before": {}, "after": {}}}
    assert "No scores were taken." in Page(render_report(fill(tmp_path, record))).words


def poison(value):
    if isinstance(value, list):
        return [poison(item) for item in value]
    if isinstance(value, dict):
        return {name: poison(item) for name, item in value.items()}
    return EVIL if isinstance(value, str) else value


def test_hostile_text_stays_text(tmp_path):
    evil = EVIL + "</title></pre></table>{{ 1 }}<img src=x onerror=alert(1)>&amp;\x00\x1b[31m\u202e"
    record = make_record()
    kept = {name: record[name] for name in ("schema", "hardware", "times", "scores")}
    record = poison(record) | copy.deepcopy(kept)
    record["hardware"]["cpu"] = record["times"]["started"] = evil
    record["scores"] = {stage: {evil: {evil: 0.5, "b": 0.5}} for stage in ("before", "after")}
    record["links"], record["settings"], record["drift"] = {evil: {evil: evil}}, {evil: [evil]}, {evil: 0.5}
    record["versions"] = {"hf_xalign": evil, evil: evil}
    record["base_model"]["name"], record["paper"]["bibtex"], record["objective"] = f"a/{evil}", evil, evil
    (tmp_path / "results.json").write_text(json.dumps(record))  # the library itself masks some of it on writing
    log = [{"step": step, f"loss/{evil}": 1.0, f"eval_{evil}": 0.5} for step in (1, 2)]
    fill(tmp_path, log=log, distances=make_grid(stages=(evil,)), retrievals=make_retrievals(evil))
    page = Page(write_report(tmp_path).read_text("utf-8"))
    page.check_loads_nothing()
    (tmp_path / "benign").mkdir()
    benign = fill(tmp_path / "benign", log=make_log(), distances=make_grid(), retrievals=make_retrievals())
    assert page.tags == Page(render_report(benign)).tags
    assert "{{ 1 }}<img src=x onerror=alert(1)>&amp;" in page.text and "<script>alert(1)</script>" in page.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", page.text)


def test_charts_are_where_their_numbers_are():
    page = Page(charts.lines({"a": [(0.0, 0.5)], "b": [(100.0, 1.0)], "c": [(0.0, 0.75)]}, title="t"))
    found = [value for tag, name, value in page.attributes if tag == "polyline" and name == "points"]
    (x0, y0), (x1, y1), (x2, y2) = ([float(n) for n in run.split(",")] for run in found)
    assert x0 == x2 < x1 and y1 < y2 < y0
    assert abs(y2 - (y0 + y1) / 2) <= 0.1 + 1e-9, "written with one place, so each is off by 0.05"
    assert Page(charts.lines({"flat": [(1.0, 0.0)]}, title="one point")).tags >= {"circle"}
    page = Page(charts.bars(0.25, 1.5, width=200))
    assert [value for tag, name, value in page.attributes if (tag, name) == ("rect", "width")] == ["50.0", "200.0"]
    assert "rect" not in Page(charts.bars(None, None)).tags


def test_one_headline_a_language_and_no_folder_of_this_machine(tmp_path):
    record = make_record()
    record["base_model"]["name"] = "/home/me/models/base"
    record["command"] = ["train", "--train_data", "de=/home/me/pairs.tsv", "--output_dir", "runs/mine"]
    record["warnings"] = ["the score of <b>de</b> fell"]
    fill(tmp_path, record)
    text = render_report(tmp_path)
    assert "/home/me" not in text and "base" in text and "de=pairs.tsv" in text and "runs/mine" in text
    assert "the score of &lt;b&gt;de&lt;/b&gt; fell." in text
    first, folded = text.split("<details>", 1)
    for language, scores in record["scores"]["after"].items():
        headline, *others = scores
        assert f"<td>{language}</td><td><code>{headline}</code>" in first
        assert all(f"<code>{name}</code>" not in first.split("<h2>Scores")[1] for name in others if name != "pool")
        assert (f"{language}: all {len(scores)} scores" in folded) == bool(others)
    assert "details" in Page(text).tags


def test_curves_end_with_the_final_score_and_one_point_is_no_curve(tmp_path):
    record = make_record()
    record["scores"]["after"] = {"de": {"retrieval_mean": 0.875}, "bn": {"retrieval_mean": 0.625}}
    log = [
        {"step": 0, "eval_de_retrieval_mean": 0.5, "eval_bn_retrieval_mean": 0.25, "eval_retrieval": 0.375},
        {"step": 5, "eval_de_retrieval_mean": 0.75, "eval_bn_retrieval_mean": 0.5, "eval_retrieval": 0.625},
        {"step": 10, "loss": 1.0},
    ]
    folder = fill(tmp_path, record, log=log, step=10)
    page = render_report(folder)
    assert page.count("<polyline") == 3 and "as logged" not in page
    ends = [line.split()[-1] for line in re.findall(r'<polyline points="([^"]+)"', page)]
    heights = [float(end.partition(",")[2]) for end in ends]  # de above the mean above bn
    assert {end.partition(",")[0] for end in ends} == {"420.0"} and heights[0] < heights[2] < heights[1]
