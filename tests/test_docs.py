"""README and docs: links lead somewhere, commands parse, Python runs, and the site builds without a network."""

import ast
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import hook  # docs/hook.py
import pytest
from support.tiny import make_encoder, make_tokenizer

ROOT = Path(__file__).resolve().parent.parent
PAGES = {str(path.relative_to(ROOT)): path for path in (*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/**/*.md")))}
FENCE = re.compile(r"(<!-- test: run -->\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


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
    text = PAGES[name].read_text("utf-8")
    blocks = "\n".join(code for _, language, code in FENCE.findall(text) if language == "bash").replace("\\\n", "")
    inline = re.findall(r"`([^`\n]*(?:recipes|benchmarks)/\w+\.py [^`]+)`", FENCE.sub("", text))
    for words in (shlex.split(line, comments=True) for line in (*blocks.splitlines(), *inline)):
        assert words[:1] != ["make"] or f"\n{words[1]}:" in (ROOT / "Makefile").read_text(), words
        files = [word for word in words if re.match("recipes/|benchmarks/", word)]
        files += [f"recipes/configs/{Path(after).stem}.yaml" for word, after in pairwise(words) if word == "--config"]
        assert all((ROOT / file).exists() for file in files), words
        at = next((at for at, word in enumerate(words) if re.match(r"recipes/\w+\.py|hf-xalign$", word)), None)
        if at is not None:
            used = {word.partition("=")[0] for word in words[at:] if word.startswith("--")}
            assert used <= known_options(*words[at : at + 3]), words


def known_options(script, *rest):
    train = rest[:1] == ("train",)
    recipe = script if script != "hf-xalign" else f"recipes/{'fao' if rest[0] == 'demo' else rest[train]}.py"
    commands = [" ".join(("hf-xalign", *rest[: 1 + train]))] * (script == "hf-xalign")
    commands += [recipe] * (ROOT / recipe).exists()
    return {option for command in commands for option in hook.parser_of(command)._option_string_actions}


@pytest.mark.parametrize("name", PAGES)
def test_python_runs_or_imports_what_exists(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run, _, code in (found for found in FENCE.findall(PAGES[name].read_text("utf-8")) if found[1] == "python"):
        imports = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(ast.Module(imports, []), name, "exec"), {})
        if run:
            make_encoder().save_pretrained("tiny")
            make_tokenizer().save_pretrained("tiny")
            exec(
                code.replace("FacebookAI/xlm-roberta-base", "tiny").replace('lang="bn"', 'lang="bn", max_pairs=40'), {}
            )


@pytest.mark.slow
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install .[docs]")
    # -P: a checkout without an editable install is only a part of the package.
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    assert (done.returncode, done.stderr) == (0, b"")
    pages = "".join(path.read_text("utf-8") for path in tmp_path.rglob("*.html"))
    assert "FAOTrainer" in pages and not re.search(r'<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//', pages)
