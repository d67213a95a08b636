"""Sentence pairs of commands: their options, and the held-out text of a run."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hf_xalign.checks import GIVEN, excludes, setting
from hf_xalign.data.sources import BUILTIN, HUB_ID, PairText, check_files, check_models
from hf_xalign.errors import InputError
from hf_xalign.language_codes import same_language
from hf_xalign.record import EVAL_LINKS, FILENAME, Record, pair_sources, read_record

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_BUILTIN_TEXT = ("builtin:de", "builtin:bn")
# Options of the text of `--data`.
_OF_PAIRS = ("data", "target_lang", "source_column", "target_column", "dataset_revision")
_MODEL_FILES = ("config.json", "adapter_config.json")


@dataclass(kw_only=True)
class TextOptions(PairText):
    """Options of a model and its base, and of held-out text, as pairs or word-aligned."""

    model: str = setting(positional=True, metavar="MODEL", help="folder, Hub id or builtin; also an adapter")
    base: str | None = setting(
        None,
        metavar="MODEL",
        help="model to compare with: the encoder before training (default: the one in the run's results.json)",
    )
    data: list[str] | None = setting(
        None,
        metavar="PAIRS",
        help="parallel text: builtin:de, LANG=FILE (TSV, CSV, JSONL, JSON, Parquet, TMX; .gz too), LANG=FILE1,FILE2 "
        "or a Hub dataset (default: the run's held-out text; for other models, builtin:de builtin:bn)",
    )
    links: str | None = setting(
        None,
        metavar="FILE",
        help="word-aligned text, such as eval_links.jsonl of a run, instead of --data",
        rules=[excludes("the file is the whole text", **{name: GIVEN}) for name in _OF_PAIRS],
    )
    split: str = setting("test", help="split of built-in and Hub text")
    target_lang: str = setting("", help="the pivot: language of the target side (default: that of the run, or en)")
    max_pairs: int | None = None
    layer: int | None = setting(None, help="layer: -1 is the last, 0 the embeddings (default: -1, or the mapped one)")
    device: str | None = setting(None, help="cpu or cuda (default: the GPU if there is one)")


class Run(NamedTuple):
    """Model or checkpoint of a recipe: its name, its folder and its record, which is empty until the run ends."""

    name: str
    folder: Path
    record: Record

    @property
    def base(self) -> str | None:
        """Return the encoder before training, or None if the run began with random weights or has no record."""
        name = self.record.get("base_model", {}).get("name")
        return None if name == "new" else name

    @property
    def layer(self) -> int:
        """Return the layer that the run is scored on: the last one, or the last mapped one."""
        return self.setting("layers", [-1])[-1] if self.record.get("method") == "mapping" else -1

    def setting(self, name: str, default: object = None) -> Any:
        """Return a setting of the run."""
        return self.record.get("settings", {}).get(name, default)


def find_model(args: TextOptions) -> Run | None:
    """Return the run of the model's folder or Hub id, or None for any other model, without heavy imports.

    A model, a base or a file of text that does not exist raises an InputError.
    """
    name = args.model
    check_models([name], whole=False)
    run, folder = find_run(name), Path(name).expanduser()
    seed_models = [*chain.from_iterable(folder.glob(f"seed-*/{file}") for file in _MODEL_FILES)]
    if seed_models and not any((folder / file).is_file() for file in _MODEL_FILES):
        raise InputError(f"{name} has several models. Name one of them, such as {min(seed_models).parent}.")
    check_models([name, args.base])
    check_files([args.links] if args.links else args.data or [])
    return run


def find_run(name: str) -> Run | None:
    """Return the run of a folder or Hub id, or None for any other model."""
    folder = Path(name).expanduser()
    folder = folder.parent if folder.name.startswith("checkpoint-") else folder
    if (folder / FILENAME).is_file():
        # Other programs write files of this name.
        ours = '"schema"' in (folder / FILENAME).read_text("utf-8", errors="replace")
        return Run(name, folder, read_record(folder)) if ours else None
    if (folder / EVAL_LINKS).is_file():
        return Run(name, folder, {})
    if folder.is_dir() or not HUB_ID.fullmatch(name):
        return None

    from huggingface_hub import hf_hub_download

    from hf_xalign.network import TransportError

    try:
        file = hf_hub_download(name, FILENAME)
    except (OSError, ValueError, TransportError):
        return None  # there is no such file, or the Hub fails, which is an error when the model is loaded
    run = find_run(str(Path(file).parent))
    return run and run._replace(name=name)


def load_stages(
    args: TextOptions, run: Run | None, device: torch.device, prompt: str | None, lines: list[str]
) -> Iterator[tuple[str, str, PreTrainedModel, PreTrainedTokenizerBase]]:
    """Yield `before` and `after` with name, encoder and tokenizer of the base, if there is one, and of the model."""
    from hf_xalign.data.encoding import set_prompt
    from hf_xalign.modeling.loading import load_encoder

    for stage, name in (("before", args.base or (run.base if run else None)), ("after", args.model)):
        if name:
            try:
                model, tokenizer = load_encoder(name, device)
            except InputError as error:
                # The base of a run is needed only if `--base` names it.
                if stage == "after" or args.base:
                    raise
                lines.append(f"the base is not scored ({error}). Name a base by --base.")
                continue
            if prompt is not None:
                set_prompt(tokenizer, prompt)
            yield stage, name, model, tokenizer
            # The caller deletes the encoder too, so that only one is in memory.
            del model, tokenizer


def read_text(
    args: TextOptions, run: Run | None, *, linked: bool = True, shown: Callable[[str], str] = str
) -> tuple[Dataset, list[str]]:
    """Load the text of [`TextOptions`], word-aligned if `linked`, and describe it in a line for each language.

    By default it is the run's held-out text. A run without sentence pairs is scored on the built-in text in its
    languages, and any other model on all built-in text. `shown` shortens the name of a run or file in the lines.
    """
    from hf_xalign.data.load import load_parallel, sources
    from hf_xalign.evaluation.vectors import language_rows
    from hf_xalign.links.frozen import read_links

    args.target_lang = args.target_lang or (run.record["languages"]["pivot"] if run and run.record else "en")
    options = {**args.columns(), "max_pairs": args.max_pairs}
    by = ""
    if args.links:
        text, name, by = read_links(args.links), shown(args.links), "from the file"
    elif args.data:
        text, name = load_parallel(args.data, split=args.split, **options), " ".join(map(shown, args.data))
    elif run and (run.folder / EVAL_LINKS).is_file():
        text, name, by = read_links(run.folder / EVAL_LINKS), f"the held-out text of {shown(run.name)}", "from the run"
    elif run and (held_out := _held_out(run)) is not None:
        text, name = held_out, f"the held-out text of {shown(run.name)}"
    else:
        items = _builtin_text(run)
        if not same_language(args.target_lang, "en"):
            fault = f"without --data the text is {' '.join(items)}, whose pivot is English"
            raise InputError(f"target_lang={args.target_lang}: {fault}. Give --data LANG=FILE.")
        text, name = load_parallel(items, split=args.split, **options), " ".join(items)
    linked_by = dict.fromkeys(language_rows(text), by if linked else "")
    if linked and not by:
        text, linked_by = _link(text, run, args)
    if args.max_pairs and not args.data:
        rows = [row_ids[: args.max_pairs] for row_ids in language_rows(text).values()]
        text = text.select(sorted(chain.from_iterable(rows)))
    lines = []
    for language, row_ids in language_rows(text).items():
        line = f"{language}: {len(row_ids):,} pairs of {name}"
        if linked_by[language]:
            line += f"; {sum(map(len, text.select(row_ids)['links'][:])):,} links, {linked_by[language]}"
        lines.append(line)
    marks = [entry.get("fingerprint") for entry in pair_sources(run.record, "train")] if run and run.record else []
    known = [entry["source"] for entry in sources(text) if entry.get("fingerprint", "") in marks]
    lines += [f"{source}: the run was trained on these pairs" for source in known]
    return text, lines


def _builtin_text(run: Run | None) -> list[str]:
    if run is None:
        return list(_BUILTIN_TEXT)
    languages = run.record["languages"] if run.record else {"pivot": "en", "others": []}
    sources = [item for item in _BUILTIN_TEXT if item.removeprefix(BUILTIN) in languages["others"]]
    if not sources or languages["pivot"] != "en":
        code = next(iter(languages["others"]), "LANG")
        raise InputError(f"{run.name} has no held-out sentence pairs. Give --data {code}=FILE or --links FILE.")
    if missing := sorted({*languages["others"]} - {item.removeprefix(BUILTIN) for item in sources}):
        logger.warning("%s: not scored, because the package has no such text. Give --data.", ", ".join(missing))
    return sources


def _held_out(run: Run) -> Dataset | None:
    """Read the held-out pairs of a run that kept no links of them, or return None if it has none."""
    if not run.record or run.record.get("task") or not pair_sources(run.record, "eval"):
        return None
    try:
        return _recorded(run, "eval")
    except InputError as error:
        code = next(iter(run.record["languages"]["others"]), "LANG")
        raise InputError(
            f"{run.name}: the held-out text of this run cannot be read ({error}). Give --data {code}=FILE or "
            "--links FILE."
        ) from error


def _recorded(run: Run, kind: str) -> Dataset:
    """Read `train` or `eval` text of a run again, as the recipe did; missing or changed text raises an InputError."""
    from hf_xalign.data.load import concatenate, load_parallel, sources

    settings = run.record["settings"]
    data = PairText(**{field.name: settings[field.name] for field in fields(PairText) if field.name in settings})
    # As in `recipes.parts.parallel.read_text`.
    most = settings.get("max_eval_pairs") if kind == "eval" else None
    keep_unlinked = kind == "train" and (run.record["method"] == "ppa" or settings.get("objective") == "none")
    texts = []
    for entry in pair_sources(run.record, kind):
        data.dataset_revision = settings.get("dataset_revision") or entry.get("revision")
        text = load_parallel(
            entry["source"],
            split=entry.get("split") or "",
            max_pairs=most,
            keep_unlinked=keep_unlinked,
            **data.columns(),
        )
        if sources(text)[0]["fingerprint"] != entry.get("fingerprint"):
            raise InputError(f"{entry['source']} has changed since the run")
        texts.append(text)
    if not texts:
        raise InputError("the run has no sentence pairs")
    return concatenate(texts)


def _link(text: Dataset, run: Run | None, args: TextOptions) -> tuple[Dataset, dict[str, str]]:
    """Add the links of an aligner to a text; describe the links by language."""
    from hf_xalign.data.arrow import count_languages
    from hf_xalign.data.load import load_parallel
    from hf_xalign.evaluation.vectors import language_rows
    from hf_xalign.links.frozen import FITTED, make_evaluation_links

    # The aligner is fitted on the text and the run's training text. If that has none of the languages, built-in text
    # is linked by an aligner that is fitted on the built-in training text.
    languages = language_rows(text)
    text_to_fit, whose, missing = None, "", ""
    if run and run.record:
        try:
            text_to_fit, whose = _recorded(run, "train"), f"training pairs of {run.name}"
        except InputError as error:
            missing = f" (no training text of {run.name}: {error})"
    counts = Counter[str]() if text_to_fit is None else count_languages(text_to_fit)
    inside = [item for item in args.data or _BUILTIN_TEXT if item.removeprefix(BUILTIN) in languages]
    if inside and not set(languages) & set(counts):
        text_to_fit, whose = load_parallel(inside, split="train", **args.columns()), "pairs of the package"
        counts = count_languages(text_to_fit)
    linked_by = {}
    for language, row_ids in languages.items():
        fitted_on = (
            f"these pairs and {counts[language]:,} {whose}" if counts[language] else f"these pairs alone{missing}"
        )
        sample = f" ({FITTED:,} of them)" if len(row_ids) + counts[language] > FITTED else ""
        linked_by[language] = f"by fast_align fitted on {fitted_on}{sample}"
    return make_evaluation_links(text, text_to_fit), linked_by
