"""Find texts and models by the names that users write. Imports nothing heavy.

A source of text is written in one of these ways, on the command line, in YAML and in Python:

    builtin:de                    Chromium's user interface, inside the package (`de`, `bn`; splits train, test).
                                   For tasks, its parts of speech (`en`: train, test; `de`, `bn`: test).
    pairs.jsonl                    one file: .tsv, .csv, .jsonl, .json, .tmx or .parquet
    clean/                         a folder of .parquet files, or one from `Dataset.save_to_disk`
    text.de,text.en                two line-aligned plain files
    owner/name, owner/name:config  a dataset on the Hub

All but Parquet may be compressed (.gz, .bz2, .xz). A plain file may hold lines `source ||| target`. Two files may also
have one column of text each (.jsonl, .csv, .json, .parquet, .conllu), or be WMT's .sgm and .xml: ids join them.
WMT's .xml with both sides is one file.

The language of its source side is a prefix, `de=pairs.tsv`, unless the rows have `source_lang` themselves.
"""

from __future__ import annotations

import difflib
import glob
import importlib.resources
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hf_xalign.builtin import find_builtin
from hf_xalign.cache import check_regular
from hf_xalign.checks import setting
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language
from hf_xalign.pretrained import check_model_folder, check_whole
from hf_xalign.record import FILE_SUFFIXES

_PATH = re.compile(r"[/.~].*|runs/.*|.*/.*/.*|.*/", re.DOTALL)  # cannot be a Hub id; recipes write to runs/
_PREFIXED = re.compile(r"([A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*)=(.+)", re.DOTALL)
HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?::([\w.+-]+))?")
BUILTIN = "builtin:"

Scheme = Literal["package", "folder", "file", "aligned", "pattern", "hub"]


class SourceKind(NamedTuple):
    """Forms that the sources of one kind of text may have."""

    suffixes: tuple[str, ...]  # each also with `.gz`; a name that ends in one is not a Hub id
    schemes: tuple[Scheme, ...] = ()  # in addition to a file and a Hub dataset
    inside: str = ""  # end of the names of its files in the package


_PAIRS = "Sentence pairs"


@dataclass(kw_only=True)
class PairColumns:
    """Options of recipes and commands that read sentence pairs: the pivot and the columns."""

    target_lang: str = setting("en", "The pivot: language of the target side.", _PAIRS)
    source_column: str | None = setting(None, "Column of source text. By default it is found by its name.", _PAIRS)
    target_column: str | None = setting(None, "Column of target text. By default it is found by its name.", _PAIRS)
    dataset_revision: str | None = setting(None, "Branch, tag or commit of Hub datasets.", _PAIRS)

    def columns(self) -> dict[str, Any]:
        """Return the arguments of `load_parallel` for the fields of this class and of [`PairText`], if there are."""
        names = ("target_lang", "source_column", "target_column", "on_empty", "sides_checked")
        given = {name: getattr(self, name, None) for name in names} | {"revision": self.dataset_revision}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(kw_only=True)
class PairText(PairColumns):
    """Options of recipes and commands that use sentence pairs as they are."""

    on_empty: Literal["error", "drop"] | None = setting(
        None, "What to do with a pair that has an empty side. Default: error.", _PAIRS
    )
    sides_checked: bool = setting(False, "Read text whose sides look swapped or like no sentences.", _PAIRS)


def parse_source(text: str) -> tuple[str, str | None]:
    """Split `de=pairs.tsv` into source and language; None without a prefix, except that `builtin:de` is German."""
    source = text.strip()
    if match := _PREFIXED.fullmatch(source):
        return match[2], match[1]
    return source, source.removeprefix(BUILTIN) if source.startswith(BUILTIN) else None


def parse_named(text: str, option: str = "") -> tuple[str, str]:
    """Split `deu=words.txt` into source and `de`, the language's one code; an InputError if it is missing."""
    source, language = parse_source(text)
    where = f"{option}={text}" if option else text
    if language is None:
        raise InputError(f"{where}: the language is missing. Write it in front, as in de={text}")
    return source, check_language(language, where)


def builtin_file(source: str, split: str, kind: str = "") -> Path:
    """Return the file of `builtin:de` inside the package, of pairs, or of tagged words with `kind=".pos"`."""
    folder = Path(str(importlib.resources.files("hf_xalign.data"))) / "chromium_ui"
    path = folder / f"{source.removeprefix(BUILTIN)}.{split}{kind}.jsonl"
    if path.is_file():
        return path
    # A file of another kind keeps a third part.
    names = (file.name.removesuffix(f"{kind}.jsonl").split(".") for file in sorted(folder.glob("*.jsonl")))
    sources = (f"{BUILTIN}{name[0]} ({name[1]})" for name in names if len(name) == 2)
    raise InputError(f"there is no {source} ({split}). The package holds {', '.join(sources)}.")


def find_source(
    source: str | Path | Sequence[str | Path], kind: SourceKind, split: str = "train"
) -> tuple[Scheme, Sequence[Path]]:
    """Return the form and the files of a source: in the package, on disk, or none for what `datasets` loads by name.

    That is a folder of `Dataset.save_to_disk`, or a name that can be a Hub id. `source` is a source without language
    prefix, or paths; `split` is the split of text in the package.
    """
    name = str(source) if isinstance(source, (str, Path)) else ""
    expanded = os.path.expanduser(name)
    if name.startswith(BUILTIN) and "package" in kind.schemes:
        return "package", [builtin_file(name, split, kind.inside)]
    if any(os.path.isfile(f"{expanded}/{mark}") for mark in ("state.json", "dataset_dict.json")):
        return "hub", []
    if os.path.isdir(expanded) and "folder" in kind.schemes:
        return "folder", [Path(expanded)]
    if not isinstance(source, (str, Path)):
        paths = [Path(item).expanduser() for item in source]
    elif "," in name and "aligned" in kind.schemes and not os.path.exists(expanded):
        paths = [Path(item.strip()).expanduser() for item in name.split(",")]
    else:
        paths = [Path(expanded)]
    if not 1 <= len(paths) <= 2:
        raise InputError(f"{len(paths)} files are named. Line-aligned text has two: the source's and the target's.")
    for path in paths:
        check_regular(path)
        if path.exists():
            continue
        # Only * and ? are patterns, because names of folders may have brackets.
        files = glob.glob(str(path).replace("[", "[[]"))
        if files and len(paths) == 1 and "pattern" in kind.schemes:
            return "pattern", sorted(map(Path, files))
        if HUB_ID.fullmatch(name) and not name.lower().endswith((*kind.suffixes, ".gz", ".bz2", ".xz")):
            return "hub", []
        package = f", {BUILTIN}de," if "package" in kind.schemes else ","
        advice = f"name a file{package} or a Hub dataset as owner/name"
        if not isinstance(source, (str, Path)):
            advice = 'two names are two files; give pairs of texts as [{"de": ..., "en": ...}]'
        raise InputError(f"{path}: no such file{nearby(path, advice)}")
    return "file" if len(paths) == 1 else "aligned", paths


def check_files(items: Iterable[str]) -> None:
    """Raise an InputError for files that are missing, before the readers are imported, which takes seconds."""
    for item in items:
        language, _, rest = item.partition("=")
        source = item.strip() if os.path.exists(item) else rest.strip() or item.strip()
        # Of examples that cross two languages, as in `es+en=ONE,OTHER`, each text is a source of its own.
        for text in map(str.strip, source.split(",") if rest and "+" in language else [source]):
            if not text.startswith(BUILTIN) and not os.path.exists(os.path.expanduser(text)):
                find_source(text, SourceKind(FILE_SUFFIXES, ("package", "folder", "aligned", "pattern")))


def check_models(names: Iterable[str | None], *, whole: bool = True) -> None:
    """Raise an InputError for paths without a folder, and for folders that hold no model.

    `whole` also refuses folders without a config or weights.
    """
    for name in filter(None, names):
        find_builtin(name)
        path = Path(name).expanduser()
        if path.is_file():
            raise InputError(f"{name} is a file. Name the model's folder, {path.parent}.")
        if path.is_dir():
            check_model_folder(path)
            if whole:
                check_whole(path)
        if _PATH.fullmatch(name) and "{seed}" not in name and not path.is_dir():
            hint = nearby(path, "name a run's folder, a Hub model as owner/name, or builtin")
            raise InputError(f"{name}: no such folder{hint}")


def nearby(path: Path, otherwise: str) -> str:
    """Return the end of an error message: similar names in the folder, or else the advice `otherwise`."""
    if not path.parent.is_dir():
        return f", nor a folder {path.parent}"
    if close := difflib.get_close_matches(path.name, sorted(os.listdir(path.parent))):
        return "; did you mean " + " or ".join(str(path.parent / name) for name in close) + "?"
    return f"; {otherwise}"
