"""The record of a run, `results.json`, from which its table, its model card and its tracker's data are made.

[`start_record`] says what it holds. Scores come later, by stage, language and metric: a share in [0, 1], or a count if
the name starts with `pool`. Methods add `adapter`, `maps`, `losses`, `intervals` or `task`. Every value is plain JSON,
and a number that is not finite is null.

The file has whole paths of this machine. What leaves the machine (a push, a card, a report) has only their last names
([`portable`]), so that it reveals nothing about the machine and its user.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

from hf_xalign._version import __version__
from hf_xalign.builtin import find_builtin
from hf_xalign.cache import read_json, write_json
from hf_xalign.environment import git_state, hardware, versions
from hf_xalign.errors import InputError, explained
from hf_xalign.score import Score

logger = logging.getLogger(__name__)

# The content of `results.json`, or a part of it.
Record = Mapping[str, Any]

SCHEMA = 1  # raise it when readers of older records would misread one
FILENAME = "results.json"
COMPLETE = "complete.json"  # written after all other files of a checkpoint, with their checksums
EVAL_LINKS = "eval_links.jsonl"  # the word-linked text that a run is scored on
DERIVED_FILE = "derived_language.json"  # of pre-training, by which fine-tuning derives the text of its task too

FILE_SUFFIXES = (".conll", ".conllu", ".csv", ".gz", ".json", ".jsonl", ".parquet", ".tmx", ".tsv", ".txt")


def start_record(
    *,
    method: str,
    base_model: str,
    languages: Sequence[str],
    pivot: str = "en",
    preset: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, object] | None = None,
    data: Mapping[str, Iterable[Record]] | None = None,
    links: Mapping[str, Record] | None = None,
    linked_by: str | None = None,
    objective: str | None = None,
    paper: Mapping[str, str] | None = None,
    license: str | None = None,
    argv: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return a record with everything that is known before training.

    Args:
        method: short name of the method (`fao`).
        base_model: Hub id, folder, or a name of a built-in encoder.
        languages: codes of the languages to align with `pivot`.
        pivot: code of the pivot language.
        preset: name of the preset.
        seed: seed of the run.
        settings: settings that differ from their default, see [`hf_xalign.config.non_default_fields`].
        data: by kind (`train`, `eval`, ...), one mapping for each source, with at least `source`. A missing `hub_id`
            is derived from it. The card also reads `fingerprint`, `pairs`, `language`, `split`, `revision`.
        links: statistics of the links by language pair.
        linked_by: what linked the training data.
        objective: the objective as a formula in plain text.
        paper: `title`, `id` (arXiv or ACL Anthology) and `bibtex` of the method's paper.
        license: licence identifier of the resulting model; by default that of a local base model's card or config.
        argv: the command line; `sys.argv` by default.
    """
    base = base_entry(base_model)
    sources: dict[str, list[dict[str, object]]] = {"train": [], "eval": []}
    for kind, entries in (data or {}).items():
        sources[kind] = list(map(_source, entries))
    record = {
        "schema": SCHEMA,
        "method": method,
        "preset": preset,
        "seed": seed,
        "command": mask_command(_typed(sys.argv if argv is None else argv)),
        "settings": {k: v for k, v in (settings or {}).items() if not is_secret_name(k)},
        "base_model": base,
        "languages": {"pivot": pivot, "others": list(languages)},
        "data": sources,
        "links": links or {},
        "linked_by": linked_by,
        "objective": objective,
        "paper": paper or None,
        "license": license or _license_of(Path(str(base["name"])).expanduser()),
        "versions": versions(),
        "git": git_state(),
        "hardware": hardware(),
        "times": {"started": _now(), "finished": None, "seconds": {}},
        "scores": {"before": {}, "untrained": {}, "after": {}},
        "drift": {},
        "trainable": None,
        "adapter": None,
        "training_loss": None,
        "warnings": [],
        "saved_to": None,
    }
    return to_plain(record)


def base_entry(name: str) -> dict[str, str | None]:
    """Return the record's `base_model` of a Hub id, a folder, or a name of a built-in encoder."""
    builtin = find_builtin(name)
    name = builtin.name if builtin else name
    return {"name": name, "hub_id": builtin.hub_id if builtin and builtin.on_hub else hub_id(name)}


@contextmanager
def phase(record: dict[str, Any], name: str) -> Iterator[None]:
    """Add the wall seconds of the block to `record["times"]["seconds"][name]`, also when it raises."""
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds = record["times"]["seconds"]
        seconds[name] = round(seconds.get(name, 0.0) + time.perf_counter() - start, 3)


def finish_record(record: dict[str, Any], saved_to: str | os.PathLike[str] | Mapping[str, object]) -> None:
    """Set `saved_to`, the time of finishing (ISO 8601, UTC) and the [`find_warnings`] of a run."""
    record["saved_to"] = to_plain(saved_to)
    record["times"]["finished"] = _now()
    record["warnings"] = find_warnings(record)


def find_warnings(record: Record) -> list[str]:
    """Return a sentence for each way in which a run ended worse than it began, or changed the pivot.

    There is a warning if the mean over languages of the headline score decreased (in percent with one decimal) or that
    of the loss on held-out text increased (three decimals). The headline score is the task's metric, or the first
    score in the record. There is also a warning if the last training loss is more than three times the first, or if
    the rank correlation of the pivot's similarities is below 0.9 (two decimals).
    """
    scores, losses = record["scores"], record.get("losses") or {}
    before = scores.get("before") or {}
    metric = next((name for name in itertools.chain(*before.values()) if not Score.read(name).is_count), "")
    metric = record["task"]["metric"] if record.get("task") else metric
    start = {code: values.get(metric) for code, values in before.items()}
    end = {code: values.get(metric) for code, values in (scores.get("after") or {}).items()}
    warnings = [
        _worse(f"headline score {metric}", "below", start, end),
        _worse("loss on held-out text", "above", losses.get("before") or {}, losses.get("after") or {}),
    ]
    loss = record.get("training_loss")
    if loss and loss["last"] > 3 * abs(loss["first"]):
        warnings.append(
            f"the training loss ended at {loss['last']:.4g}, more than 3 times its first value, {loss['first']:.4g}. "
            "The run diverged; reduce learning_rate."
        )
    low = []
    for unit, prefix in (("words", ""), ("sentences", "sentence_")):
        rank = record["drift"].get(f"{prefix}rank_correlation")
        if rank is not None and round(rank, 2) < 0.9:
            low.append(f"{unit} {rank:.2f}")
    if low:
        warnings.append(
            "the pivot's vectors changed: the rank correlation of its similarities before and after training is below "
            f"0.9 ({', '.join(low)}). Compute indexes and classifiers on its old vectors again."
        )
    return list(filter(None, warnings))


def _worse(measure: str, side: str, before: Record, after: Record) -> str:
    """Return a sentence if the mean over languages became worse, or ""."""
    factor, digits, sign = (100, 1, 1) if side == "below" else (1, 3, -1)
    ends = {}
    for code, start in before.items():
        if None not in (start, after.get(code)):
            ends[code] = factor * start, factor * after[code]
    if not ends:
        return ""
    mean = tuple(sum(column) / len(ends) for column in zip(*ends.values(), strict=True))
    if sign * (round(mean[1], digits) - round(mean[0], digits)) >= 0:
        return ""
    worst = min(ends, key=lambda code: sign * (ends[code][1] - ends[code][0]))
    named = {worst: ends[worst]}
    if len(ends) > 1:
        named = {f"mean of {len(ends)} languages": mean, f"worst in {worst}": ends[worst]}
    values = (f"{name} {start:,.{digits}f} before, {end:,.{digits}f} after" for name, (start, end) in named.items())
    return f"the {measure} ended {side} its start: {'; '.join(values)}"


def write_record(folder: str | os.PathLike[str], record: Record) -> Path:
    """Write `results.json` into a folder, which is created if it is missing, and return its path."""
    return write_json(Path(folder) / FILENAME, to_plain(record))


def read_record(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the `results.json` of a folder; refuse one that a newer hf_xalign wrote."""
    path = Path(folder) / FILENAME
    with explained(f"{path}", FileNotFoundError, advice=". Give the folder of a finished run."):
        record = read_json(path, "not a JSON record", "The file was edited or truncated.")
    if record["schema"] > SCHEMA:
        raise InputError(f"{path}: schema {record['schema']} is newer than {SCHEMA}. Upgrade hf_xalign {__version__}")
    return record


def list_checkpoints(folder: str | os.PathLike[str]) -> list[tuple[int, Path]]:
    """Return step and folder of a run's checkpoints, in order; the Trainer calls them `checkpoint-STEP`."""
    steps = ((path.name.removeprefix("checkpoint-"), path) for path in Path(folder).glob("checkpoint-*"))
    return sorted((int(step), path) for step, path in steps if step.isdecimal() and path.is_dir())


def pair_sources(record: Record, kind: str) -> list[Record]:
    """Return the `data` entries of one kind (`train`, `eval`) that are sentence pairs."""
    return [entry for entry in record["data"].get(kind, ()) if "pairs" in entry]


def to_plain(value: object, where: str = "record") -> Any:
    """Convert a value to plain JSON.

    Arrays and tensors become lists, enums become their values, and numbers that are not finite become null. Tokens in
    text are masked.

    Raises:
        TypeError: a part of the value has no JSON form. The message names the part by `where` and its keys.
    """
    if isinstance(value, Enum):
        return to_plain(value.value, where)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, os.PathLike):
        return to_plain(os.fspath(value), where)
    if isinstance(value, Mapping):
        return {str(to_plain(k, where)): to_plain(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return sorted(to_plain(v, where) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name), f"{where}.{f.name}") for f in dataclasses.fields(value)}
    # Numbers and arrays of numpy and torch, without importing either.
    if type(value).__module__.partition(".")[0] in ("numpy", "torch") and hasattr(value, "tolist"):
        return to_plain(value.tolist(), where)
    raise TypeError(f"{where}: {type(value).__name__} has no JSON form")


# Start of a path that only this machine has: absolute, in a home folder, in a variable, or above the working folder.
_ROOT = (
    r"(?:file:/+|/(?![/\s])|[A-Za-z]:[\\/]|\\\\(?=\w)|~[\w.-]*(?=[\\/]|$)|\$\{?\w+\}?[\\/]|%\w+%[\\/]"
    r"|(?:[\w.@+-]+[\\/])*\.\.(?:[\\/]|$))"
)
_PATH = re.compile(rf"(?<![^\s=:,;|\"'`(\[{{]){_ROOT}")
_NEXT_PATH = re.compile(rf"\n|\s*[,;:=|]\s*(?={_ROOT})|\s+(?={_ROOT})")
_ROOT_NAME = re.compile(r"(file|[A-Za-z]):|~.*|\$\{?\w+\}?|%\w+%|\.{0,2}")


def portable(value: object) -> Any:
    """Shorten every path of this machine, in the text of a nested value, to its last name.

    A home folder becomes `~`. Relative paths and addresses are unchanged.

    Example:
        >>> portable(["--train_data", "de=/home/me/my text/de.tsv", "--aligner", "dictionary:../me/en-de.txt"])
        ['--train_data', 'de=de.tsv', '--aligner', 'dictionary:en-de.txt']
    """
    if isinstance(value, Mapping):
        # Fields whose text may look like a path.
        like_paths = ("labels", "objective", "paper")
        return {portable(k): v if k in like_paths else portable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(portable, value))
    return _portable_text(value) if isinstance(value, str) else value


def _portable_text(text: str) -> str:
    shortened, position = "", 0
    while match := _PATH.search(text, position):
        start, end = match.start(), len(text)
        if (quote := text[start - 1 : start]) in ("'", '"', "`"):
            closing = text.find(quote, match.end())
            end = end if closing < 0 else closing
        if following := _NEXT_PATH.search(text, match.end(), end):
            end = following.start()
        shortened += text[position:start] + _last_name(text[start:end])
        position = end
    return shortened + text[position:]


def _last_name(path: str) -> str:
    names = [name for name in re.split(r"[\\/]+", path.rstrip()) if not _ROOT_NAME.fullmatch(name)]
    if not names:
        return path if path[:1] in "./" else "~"
    at_home = len(names) == 2 and names[0].lower() in ("home", "users")
    return "~" if at_home or names[-1] == os.path.basename(os.path.expanduser("~")) else names[-1]


def mask_secrets(text: str) -> str:
    """Replace Hub tokens and passwords in addresses by `***`."""
    return re.sub(r"\bhf_[A-Za-z0-9]{20,}|(?<=://)[^/@\s]+(?=@)", "***", text)


def is_secret_name(name: str) -> bool:
    """Return whether a field or option of this name holds a credential, which no file may contain."""
    return bool(re.search(r"(^|[_-])(token|api[_-]key|password|secret)$", name.lstrip("-"), re.IGNORECASE))


def _typed(argv: Sequence[str]) -> list[str]:
    """Return a command line as users type it, with `hf-xalign train NAME` for the file of a recipe."""
    program = Path(argv[0]) if argv else Path()
    if program.parent.name != "recipes":
        return list(argv)
    return ["hf-xalign", "train", program.stem, *argv[1:]]


def mask_command(argv: Sequence[str]) -> list[str]:
    """Replace the values of secret options, Hub tokens and passwords in addresses by `***`."""
    masked: list[str] = []
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        option = word.startswith("--") and is_secret_name(name)
        if hide and not word.startswith("--"):
            masked.append("***")
        else:
            masked.append(f"{name}=***" if option and equals else mask_secrets(word))
        hide = option and not equals
    return masked


def hub_id(name: str) -> str | None:
    """Return `name` if it can be a Hub id (`owner/name`, or the bare name of an old model) and is not a local path."""
    local = name in ("builtin", "new") or name.endswith(FILE_SUFFIXES) or Path(name).exists()
    return name if re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", name) and not local else None


def _source(entry: Record) -> dict[str, object]:
    """Add `hub_id` to an entry such as `de=owner/name:config`; a name without an owner is local."""
    source = str(entry["source"])
    name = source.rpartition("=")[2].partition(":")[0]
    return {"source": source, "hub_id": hub_id(name) if "/" in name else None, **entry}


def _license_of(folder: Path) -> str | None:
    import yaml

    names: list[object] = []
    with suppress(OSError, ValueError, AttributeError, RecursionError, yaml.YAMLError):
        front = re.split(r"(?m)^---\s*$", (folder / "README.md").read_text("utf-8"), maxsplit=2)[1:2]
        data = yaml.safe_load("".join(front)) or {}
        names += [data.get("license"), data.get("license_name")]
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        names += [json.loads((folder / "config.json").read_text("utf-8")).get("license")]
    # A card that names a licence unknown to the Hub says `other`, and the name next to it.
    return next((name for name in names if isinstance(name, str) and name not in ("", "other")), None)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
