"""The page of `hf-xalign explore`: word similarities of two sentences, nearest words, and nearest sentences."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from datasets import Dataset
from markupsafe import Markup

from hf_xalign.checks import require
from hf_xalign.errors import InputError
from hf_xalign.evaluation.similarity import WordSimilarity
from hf_xalign.explore.held_out import Found, HeldOut
from hf_xalign.report.charts import render

if TYPE_CHECKING:
    from gradio import Blocks
    from gradio.components import Component


def typed(text: str) -> str:
    """Return a text as the encoder reads it: in NFC, without blanks around it; an empty one is an InputError."""
    if not text.strip():
        raise InputError("the text is empty")
    return unicodedata.normalize("NFC", text.strip())


def draw(stages: Mapping[str, HeldOut], find: Callable[..., WordSimilarity | dict[str, Found]], *texts: str) -> str:
    """Return what `find` finds for typed texts in every encoder, by its title such as `before`, one under the other.

    `find` is a method of [`HeldOut`]. What was typed is escaped. What cannot be shown, such as an empty sentence, is a
    line that says why.
    """
    try:
        given = list(map(typed, texts))
        found = {title: find(stage, *given) for title, stage in stages.items()}
    except InputError as error:
        return str(Markup("<p><b>{}</b></p>").format(error))
    return render("found.html", found=found)


def make_page(stages: Mapping[str, HeldOut], text: Dataset, title: str, about: str) -> Blocks:
    """Create the page; `about` is the line under its title. [`serve`] shows it.

    The first linked pair of the text fills it in. Words and sentences are encoded when they are first asked for.
    """
    gradio = require("gradio", "the page", "app")
    pair = text[0]
    codes = list(dict.fromkeys([*text["source_lang"][:], *text["target_lang"][:]]))
    word = next((pair["source_words"][i] for i, _ in pair["links"]), "")

    def row(label: str, value: str, code: str) -> list[Component]:
        with gradio.Row():
            choice = {"value": code, "label": "Language", "min_width": 100, "scale": 1}
            # 4,000 letters: a matrix has a cell for any two words.
            return [gradio.Textbox(value, label=label, scale=4, max_length=4000), gradio.Dropdown(codes, **choice)]

    def button(name: str, find: Callable[..., Any], inputs: list[Any], value: str = "") -> None:
        press, output = gradio.Button(name, variant="primary"), gradio.HTML(value)
        # One thread at a time encodes. A private function is not listed as an API.
        alone = {"concurrency_id": "encoder", "concurrency_limit": 1, "api_visibility": "private"}
        gradio.on([press.click, inputs[0].submit], partial(draw, stages, find), inputs, output, **alone)

    source, target = (pair["source"], pair["source_lang"]), (pair["target"], pair["target_lang"])
    with gradio.Blocks(title=title, analytics_enabled=False) as page:
        gradio.HTML(str(Markup("<h1>{}</h1><p>{}</p>").format(title, about)))
        with gradio.Tab("Matrix"):
            inputs = [*row("Sentence", *source), *row("Translation", *target)]
            button("Compare", HeldOut.compare, inputs, draw(stages, HeldOut.compare, *source, *target))
        with gradio.Tab("Words"):
            button("Find words", HeldOut.neighbours, row("Word", word, pair["source_lang"]))
        with gradio.Tab("Sentences"):
            button("Find sentences", HeldOut.search, row("Search", *source))
    return page


def serve(page: Blocks, host: str, port: int | None) -> str:
    """Serve the page in threads of its own and return its address. It loads nothing from elsewhere."""
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        prevent_thread_lock=True,
        share=False,  # it would open a tunnel to this machine
        strict_cors=True,  # refuses pages of other addresses
        ssr_mode=False,  # needs Node.js
        max_file_size=1,
        enable_monitoring=False,
        run_history=False,
        footer_links=[],
        quiet=True,
    )
    return address
