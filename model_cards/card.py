"""Render the model card (README.md) of a run from its record alone: the same record gives the same card.

User input (names of models, data, settings) is shown as code or escaped, so it cannot become Markdown, HTML or front
matter. Paths are shortened to the part that makes sense on another machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from jinja2 import Environment, FunctionLoader, StrictUndefined

from hf_xalign.model_cards.body import body
from hf_xalign.model_cards.markdown import code, fence, text
from hf_xalign.model_cards.metadata import card_data
from hf_xalign.model_cards.task import task_values
from hf_xalign.record import portable, to_plain, write_text

# Methods with their own part, `method_<name>.md`, which extends the template.
_METHODS = ("align_mlm", "fao", "mao", "mapping", "ppa")


def render_card(record: Mapping[str, Any], *, repo_id: str | None = None, pictures: Iterable[str] = ()) -> str:
    """Render the card as Markdown with YAML front matter.

    Args:
        record: run's record, from `hf_xalign.record.start_record` or `read_record`.
        repo_id: Hub repository of the model, named in the loading snippet.
        pictures: names of files next to the card; `curve.png` and `distances_*.png` are shown.

    Example:
        >>> from hf_xalign.record import start_record
        >>> data = [{"source": "builtin:de", "language": "de"}]
        >>> record = start_record(
        ...     method="fao", preset="mao", base_model="builtin", languages=["de"], seed=0, settings={},
        ...     data={"train": data, "eval": data}, argv=["hf-xalign", "train", "fao"],
        ... )
        >>> "# multilingual-e5-small aligned with fao (de)" in render_card(record)
        True
    """
    record = portable(to_plain(record))
    environment = Environment(loader=FunctionLoader(_read), undefined=StrictUndefined)
    environment.filters |= {"code": code, "text": text, "fence": fence}
    template = f"method_{record['method']}.md" if record["method"] in _METHODS else "template.md"
    values = body(record, repo_id=repo_id, pictures=pictures)
    if record.get("task"):
        template, values = "task.md", values | task_values(record)
    card = environment.get_template(template).render(card_data=card_data(record).to_yaml(), **values)
    return re.sub(r"\n{3,}", "\n\n", str(ModelCard(card))).rstrip() + "\n"


def write_card(folder: str | os.PathLike[str], record: Mapping[str, Any], *, repo_id: str | None = None) -> Path:
    """Write the card as `README.md` of `folder`, with its pictures, atomically; return the path."""
    folder = Path(folder)
    pictures = [path.name for path in folder.glob("*.png")]
    return write_text(folder / "README.md", render_card(record, repo_id=repo_id, pictures=pictures))


def _read(name: str) -> str:
    return resources.files("hf_xalign.model_cards").joinpath(name).read_text(encoding="utf-8")
