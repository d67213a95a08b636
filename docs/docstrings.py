"""Build hook: show mkdocstrings the package as one tree, and read text in brackets as this project writes it."""

import re
from pathlib import Path
from typing import Any

import griffe
from markdown import Extension, Markdown
from mkdocs.plugins import event_priority

ROOT = Path(__file__).resolve().parent.parent


class PlainBrackets(Extension):
    """Leaves `[CLS] [SEP]` in a text alone, which mkdocs-autorefs reads as a link to a heading `SEP`."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Take back the pattern of autorefs: the pages link by address, docstrings by `on_page_content`."""
        md.inlinePatterns.deregister("mkdocs-autorefs", strict=False)


@event_priority(-100)  # after the plugins have added their extensions
def on_config(config: Any) -> Any:
    """Add `PlainBrackets` to the extensions."""
    config.markdown_extensions.append(PlainBrackets())
    return config


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
    """Reads `Example:` and `Args: (the others are those of ...)` of a docstring as sections that griffe knows.

    It also shows a constructor's `**kwargs` as the arguments of the base class that takes them.
    """

    def on_package(self, *, pkg: griffe.Module, **kwargs: object) -> None:
        """Complete the constructors, once all modules are read."""
        for module in (pkg, *self._modules(pkg)):
            for one in module.classes.values():
                if not one.is_alias:
                    self._complete(one)

    def _modules(self, module: griffe.Module) -> list[griffe.Module]:
        inner = [one for one in module.modules.values() if not one.is_alias]
        return [*inner, *(deeper for one in inner for deeper in self._modules(one))]

    def _complete(self, found: griffe.Class) -> None:
        own = found.members.get("__init__")
        if own is None or own.is_alias or not any(one.name == "kwargs" for one in own.parameters):
            return
        for base in found.mro():
            given = base.members.get("__init__")
            if given is None:
                continue
            self._complete(base)
            named = [one for one in own.parameters if not str(one.kind).startswith("variadic")]
            known = {one.name for one in named}
            more = [one for one in given.parameters if one.name not in known]
            own.parameters = griffe.Parameters(*named, *more)
            return

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Change the docstring of a class or function."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            others = r"^Args: \(the others (.+)\)$"
            obj.docstring.value = re.sub(others, r"The other arguments \1.\n\nArgs:", text, flags=re.MULTILINE)
