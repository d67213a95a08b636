"""Build hook: show mkdocstrings the package as one tree, and read docstrings as this project writes them."""

import re
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parent.parent


def on_startup(**kwargs: object) -> None:
    """Link the package's folders to where they are imported from, for mkdocstrings to read."""
    tree = ROOT / "build" / "docs" / "hf_xalign"
    tree.mkdir(parents=True, exist_ok=True)
    for path in (*(ROOT / "hf_xalign").iterdir(), *(ROOT / name for name in ("trainers", "recipes", "model_cards"))):
        if not (tree / path.name).is_symlink():
            (tree / path.name).symlink_to(path)


def on_page_content(html: str, **kwargs: object) -> str:
    """Link the names that docstrings have in brackets, such as [`~hf_xalign.load`]."""
    link = r'<autoref optional identifier="\1"><code>\2</code></autoref>'
    return re.sub(r"\[<code>~?((?:[\w.]+\.)?(\w+))</code>\]", link, html)


class Docstrings(griffe.Extension):
    """Reads `Example:` and `Args: (the others are those of ...)` of a docstring as sections that griffe knows."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Change the docstring of a class or function."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            others = r"^Args: \(the others (.+)\)$"
            obj.docstring.value = re.sub(others, r"The other arguments \1.\n\nArgs:", text, flags=re.MULTILINE)
