"""The page of `hf-xalign explore`: four tabs of Gradio around [`~hf_xalign.explore.held_out.HeldOut`]."""

from __future__ import annotations

import random
import unicodedata
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hf_xalign.checks import require
from hf_xalign.data.words import split_words
from hf_xalign.errors import InputError
from hf_xalign.evaluation.vectors import language_rows, side_language
from hf_xalign.explore.held_out import HeldOut, Plane, frequent_links
from hf_xalign.palette import COLORS

if TYPE_CHECKING:
    from gradio import Blocks

Translations = dict[tuple[str, str], set[tuple[str, str]]]


def _shown(draw: Callable[..., str]) -> Callable[..., str]:
    """Let a method of [`Views`] show an InputError as a line of the page."""

    @wraps(draw)
    def show(views: Views, *inputs: Any) -> str:
        try:
            return draw(views, *inputs)
        except InputError as error:
            return views._macros.error(str(error))

    return show


class Views:
    """HTML of what the page shows, for each of several encoders of the same held-out text.

    Texts are escaped. What cannot be shown, such as an empty sentence or one of more than 512 words, is a line that
    says why.

    Args:
        stages: the encoded text by title, such as `before` and `after`.
        text: the held-out text itself, word-aligned.
    """

    def __init__(self, stages: Mapping[str, HeldOut], text: Dataset):
        self.stages, self._text = stages, text
        self._rows = language_rows(text)
        self._pivots = {
            code: side_language(text.select(rows[:1]), "target") or "en" for code, rows in self._rows.items()
        }
        # {(language, word or sentence): {(language, its translation)}}
        self._words: Translations = defaultdict(set)
        self._sentences: Translations = defaultdict(set)
        for language, rows in self._rows.items():
            sentences, pivot = text.select(rows), self._pivots[language]
            for row in sentences:
                _enter(self._sentences, (language, row["source"]), (pivot, row["target"]))
                for i, j in row["links"]:
                    _enter(self._words, (language, row["source_words"][i]), (pivot, row["target_words"][j]))
        self.languages = list(self._rows)
        self.codes = list(dict.fromkeys([*self.languages, *self._pivots.values()]))
        environment = Environment(
            loader=PackageLoader("hf_xalign.explore", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        environment.globals["cells"] = _cells
        self._macros: Any = environment.get_template("parts.html").module

    def draw_pair(self, language: str) -> tuple[str, str, str, str]:
        """Draw a short linked pair of the text: source, target and their languages, the first for the pivot."""
        language = language if language in self._rows else self.languages[0]
        rows = self._text.select(self._rows[language])
        words_and_links = zip(rows["source_words"][:], rows["links"][:], strict=True)
        short = [n for n, (words, links) in enumerate(words_and_links) if 3 <= len(words) <= 12 and links]
        row = rows[random.choice(short or range(len(rows)))]
        return row["source"], row["target"], language, self._pivots[language]

    def frequent_word(self, language: str) -> str:
        """Return the most frequent linked word of a language that has more than three letters."""
        pairs = frequent_links(self._text, language, 20)
        return max((word for word, _ in pairs), key=lambda word: len(word) > 3, default="")

    @_shown
    def compare(self, source: str, target: str, source_lang: str, target_lang: str) -> str:
        """Show the similarity matrix and the predicted links of two sentences."""
        ends = _typed(source, source_lang), _typed(target, target_lang)
        by_stage = {name: stage.compare(*ends, source_lang, target_lang) for name, stage in self.stages.items()}
        return self._macros.matrices(by_stage)

    @_shown
    def neighbours(self, word: str, language: str) -> str:
        """Show the nearest words of every language."""
        query = _typed(word, language)
        by_stage = {name: stage.neighbours(query, language) for name, stage in self.stages.items()}
        in_text = query in next(iter(self.stages.values())).words[language].rows
        note = "Nearest words of the held-out text, by CSLS. A word is the mean of its occurrences. "
        note += "Underlined: linked to it there." if in_text else "The text lacks this word: it is encoded alone."
        return self._macros.lists(by_stage, note, self._words.get((language, query), ()), "8rem")

    @_shown
    def search(self, sentence: str, language: str) -> str:
        """Show the nearest sentences of every language."""
        query = _typed(sentence, language)
        by_stage = {name: stage.search(query, language) for name, stage in self.stages.items()}
        partners = self._sentences.get((language, query), ())
        note = "Nearest sentences of the held-out text, by cosine."
        note += " Underlined: its translation." if partners else ""
        return self._macros.lists(by_stage, note, partners, "100%")

    @_shown
    def plane(self, language: str, words: int) -> str:
        """Show linked words of a language and its pivot in two dimensions."""
        pivot, stages = self._pivots[language], self.stages
        pairs = frequent_links(self._text, language, words, list(stages.values()))
        if len(pairs) < 2:
            raise InputError(f"{language}: the held-out text has fewer than two linked words")
        planes = {name: stage.plane(pairs, language, pivot) for name, stage in stages.items()}
        drawn = {name: (plane, _places(plane)) for name, plane in planes.items()}
        return self._macros.planes(drawn, pairs, (language, pivot), COLORS[1::-1])

    def heading(self, title: str, subtitle: str) -> str:
        """Show the page's heading."""
        return self._macros.heading(title, subtitle)


def _typed(text: str, language: str) -> str:
    """Return a text in NFC, without blanks around it, and refuse a long one before it is encoded."""
    text = unicodedata.normalize("NFC", text.strip())
    most = 512
    if (words := len(split_words(text, language))) > most:
        raise InputError(f"this text has {words:,} words, more than the {most} that the page takes: shorten it")
    return text


def _cells(similarities: np.ndarray, choices: np.ndarray, partner: int | None) -> Markup:
    """Return a row of the matrix as one short string: two sentences of 512 words have 262,144 cells.

    A choice of less than 0.01 has no color, which could not be seen, and cells have no end tags, which HTML allows.
    """
    cells = []
    for column, (value, share) in enumerate(zip(similarities.tolist(), choices.tolist(), strict=True)):
        linked = ' class="xa-linked"' if column == partner else ""
        color = f"background: rgba(0, 114, 178, {share:.2f})" + ("; color: #fff" if share > 0.85 else "")
        color = f' style="{color}"' if share >= 0.01 else ""
        cells.append(f"<td{linked}{color}>{value:.2f}" if value == value else "<td>–")
    return Markup("".join(cells))


def _enter(translations: Translations, *ends: tuple[str, str]) -> None:
    for phrase, translation in (ends, ends[::-1]):
        translations[phrase].add(translation)


def _places(plane: Plane) -> list[list[tuple[float, float]]]:
    """Return the places of every pair in the drawing, which shows both axes in one scale."""
    width, height, edge = 520, 420, 40
    low, high = plane.points.min((0, 1)), plane.points.max((0, 1))
    scale = ((width - 2 * edge) / max(high[0] - low[0], 1e-9), (height - 2 * edge) / max(high[1] - low[1], 1e-9))
    middle, room = (low + high) / 2, np.array([1, -1]) * min(scale)
    places = (plane.points - middle) * room + (width / 2, height / 2)
    return places.round(1).swapaxes(0, 1).tolist()


def make_page(views: Views, title: str, about: str) -> Blocks:
    """Create the page; `about` is the line under its title. [`serve`] shows it.

    A tab encodes the text when it is first opened.
    """
    gradio: Any = require("gradio", "the page", "app")
    source, target, *codes = views.draw_pair(views.languages[0])
    hidden: dict[str, Any] = {"api_visibility": "private", "trigger_mode": "always_last"}
    small: dict[str, Any] = {"scale": 0, "min_width": 150}

    def row(label: str, text: str, code: str) -> list[Any]:
        with gradio.Row():
            return [
                gradio.Textbox(text, label=label, scale=4),
                gradio.Dropdown(views.codes, value=code, label="Language", min_width=100, scale=1),
            ]

    with gradio.Blocks(title=title, analytics_enabled=False) as page:
        gradio.HTML(views.heading(title, about))
        with gradio.Tab("Pair"):
            ends = row("Sentence", source, codes[0]), row("Translation", target, codes[1])
            inputs = [end[box] for box in (0, 1) for end in ends]
            with gradio.Row():
                compare = gradio.Button("Compare", variant="primary", **small)
                another = gradio.Button("Another pair", **small)
            output = gradio.HTML(views.compare(source, target, *codes))
            drawn = another.click(views.draw_pair, inputs[2], inputs, **hidden)
            drawn.then(views.compare, inputs, output, **hidden)
            gradio.on([compare.click, *(box.submit for box, _ in ends)], views.compare, inputs, output, **hidden)
        for name, label, text, show in (
            ("Words", "Word", views.frequent_word(codes[0]), views.neighbours),
            ("Search", "Sentence", source, views.search),
        ):
            with gradio.Tab(name) as tab:
                inputs = row(label, text, codes[0])
                with gradio.Row():
                    find = gradio.Button("Find", variant="primary", **small)
                output = gradio.HTML(min_height=150)
                gradio.on([tab.select, find.click, inputs[0].submit], show, inputs, output, **hidden)
        with gradio.Tab("Map") as tab:
            with gradio.Row():
                choices: list[Any] = [
                    gradio.Dropdown(views.languages, value=codes[0], label="Language", scale=1),
                    gradio.Slider(10, 100, 20, step=10, label="Linked words", scale=2),
                ]
            output = gradio.HTML(min_height=150)
            gradio.on([tab.select, *(control.change for control in choices)], views.plane, choices, output, **hidden)
    return page


def serve(page: Blocks, host: str, port: int | None) -> str:
    """Serve the page in threads of its own and return its address. It loads nothing from elsewhere.

    The server answers the page alone, see [`~hf_xalign.explore.guard.Guard`].
    """
    import gradio

    from hf_xalign.explore.guard import Guard

    @asynccontextmanager
    async def guarded(app: Any) -> AsyncIterator[None]:
        # Around all of Gradio's own middleware, which would answer for other origins, and before the first request.
        app.middleware_stack = Guard(app.middleware_stack, host)
        yield

    if ":" in host and not host.startswith("["):
        host = f"[{host}]"  # Gradio makes an address of it
    page.queue(max_size=32)  # requests that wait
    fonts: dict[str, Any] = {"font": ("system-ui", "sans-serif"), "font_mono": ("ui-monospace", "monospace")}
    return page.launch(
        server_name=host,
        server_port=port,
        app_kwargs={"lifespan": guarded},
        theme=gradio.themes.Default(primary_hue="indigo", **fonts),
        css_paths=Path(__file__).with_name("page.css"),
        footer_links=[],
        prevent_thread_lock=True,
        quiet=True,
        enable_monitoring=False,
        run_history=False,
        share=False,
        ssr_mode=False,
    )[1]
