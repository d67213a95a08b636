"""`hf-xalign align-words`: word-align sentence pairs."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hf_xalign.checks import excludes, needs, setting
from hf_xalign.data.sources import PairText
from hf_xalign.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

DESCRIPTION = """Align the words of sentence pairs.

    hf-xalign align-words de=pairs.tsv --output links.pharaoh
    hf-xalign align-words de=text.de,text.en --format jsonl --output links.jsonl
    hf-xalign align-words clean/*.parquet linked --workers 8
    hf-xalign align-words clean linked --aligner encoder --ray auto

With one argument, PAIRS is a text: LANG=FILE (TSV, CSV, JSONL, JSON, Parquet, TMX; .gz too), LANG=FILE1,FILE2 (line by
line), a Hub dataset, or builtin:de. Pharaoh format has one line of links for each pair, such as `0-0 1-2`, with the
source word first. Its words are source_words and target_words if the text has these columns (JSONL, JSON, Parquet).
Otherwise text is split at spaces only, so tokenize it first. The rows of jsonl contain their words, and the recipes
read them as --eval_links. --gold FILE scores the links against hand-made ones (Pharaoh, TALP, `14p19`, NAACL's .wa
with S and P): precision, recall and alignment error rate (AER). A FILE with fewer pairs is of the text's first ones,
unless it numbers them, as NAACL's do.

With several arguments, PAIRS are Parquet files, or folders of them, and the last one is the folder to write. It gets
part-*.parquet, with all columns and source_words, target_words and links, and align-words.json (settings and counts).
Recipes read the folder. The same command resumes a killed run. The result does not depend on --workers or --ray."""

_OF_TEXT = ("max_pairs", "source_column", "target_column", "dataset_revision", "on_empty", "format", "output", "gold")
_OF_SHARDS = ("shards", "workers", "ray")
_CLEARLY = 0.1  # lower error rate of turned links that tells their direction
_SAMPLE, _SHARE, _SHORTEST = 1000, 0.1, 4  # texts to check, share without a space to warn of, their least letters


@dataclass(kw_only=True)
class Arguments(PairText):
    """The text, the aligner and the output."""

    pairs: list[str] = setting(
        positional=True, metavar="PAIRS", help="one text, or Parquet shards and a folder, see above"
    )
    split: str = setting("train", help="split of built-in and Hub text")
    max_pairs: int | None = setting(None, least=1, help="use the first N pairs of a text")
    aligner: str = setting(
        "fast_align",
        help="fast_align, hmm, ibm1 to ibm4, eflomal (all by sil-thot), dictionary:PATH, or encoder (word vectors of "
        "--model): fewest errors, above all in few pairs, and slowest",
    )
    model: str = setting("builtin", help="encoder: Hub id, folder or builtin", rules=[needs(aligner="encoder")])
    device: str | None = setting(
        None,
        help="device of the encoder: cpu or cuda (default: the GPU if there is one)",
        rules=[needs(aligner="encoder")],
    )
    symmetrization: Literal["intersection", "union", "grow-diag", "grow-diag-final-and"] = setting(
        "intersection", help="how to combine the two directions of the aligner"
    )
    several: bool = setting(False, flag=True, help="keep words that have several links")
    fit_pairs: int = setting(1_000_000, least=1, help="fit an aligner on a sample of at most N pairs")
    seed: int = setting(0, least=0, help="seed of the sample and of randomized aligners")
    format: Literal["pharaoh", "jsonl"] | None = setting(
        None, group="output of one text", help="format of the output (default: pharaoh)"
    )
    output: str | None = setting(
        None, group="output of one text", metavar="FILE", help="file to write (default: standard output)"
    )
    gold: str | None = setting(
        None,
        group="output of one text",
        metavar="FILE",
        help="print precision, recall and AER against these links; the links themselves are written to --output alone",
        rules=[excludes("a pair that is dropped moves the links of those after it", on_empty="drop")],
    )
    shards: int | None = setting(
        None, group="shards", least=1, help="shards to write (default: one for each 100,000 pairs)"
    )
    workers: int | None = setting(None, group="shards", least=1, help="worker processes (default: one for each core)")
    ray: str | None = setting(
        None,
        group="shards",
        bare="local",
        metavar="ADDRESS",
        help="run on Ray: on the cluster at ADDRESS (`auto` on one of its machines), or without ADDRESS here",
    )


def run(args: Arguments) -> None:
    """Align a text, or shards."""
    is_one_source = len(args.pairs) == 1
    shards, text = "shards. Give Parquet files and the folder to write", "one text. Remove it, or give one text"
    unfit, remedy = (_OF_SHARDS, shards) if is_one_source else (_OF_TEXT, text)
    for name in unfit:
        if getattr(args, name) is not None:
            raise InputError(f"--{name} is an option for {remedy}.")
    options: dict[str, Any] = {"one_to_one": not args.several, "seed": args.seed}
    if is_one_source:
        _align_text(args, options)
    else:
        _align_shards(args, options)


def _align_shards(args: Arguments, options: dict[str, Any]) -> None:
    from hf_xalign.environment import usable_cores
    from hf_xalign.links import align_shards
    from hf_xalign.tables import table

    *sources, output = args.pairs
    if args.aligner == "encoder":
        from hf_xalign.modeling.loading import choose_device

        options |= {"model": args.model, "device": str(choose_device(args.device))}
    record = align_shards(
        sources,
        output,
        args.aligner,
        symmetrization=args.symmetrization,
        fit_pairs=args.fit_pairs,
        shards=args.shards,
        workers=usable_cores() if args.workers is None else args.workers,
        ray=args.ray,
        **options,
    )
    rows = [[name, f"{counts['pairs']:,}", f"{counts['links']:,}"] for name, counts in record["languages"].items()]
    print(table([["language", "pairs", "links"], *rows], 2))
    print(f"{len(record['shards'])} shards: {output}")


def _align_text(args: Arguments, options: dict[str, Any]) -> None:
    from hf_xalign.cache import check_output, map_rows, replacing
    from hf_xalign.data.load import load_parallel
    from hf_xalign.data.parallel import LINKED
    from hf_xalign.data.sources import check_files
    from hf_xalign.links import align_words

    if args.output is not None:
        check_output(args.output, file=True)
    check_files([args.gold] if args.gold else [])
    text = load_parallel(args.pairs, split=args.split, max_pairs=args.max_pairs, **args.columns())
    if args.format != "jsonl":
        _warn_of_unsplit(text[:_SAMPLE])
        text = map_rows(text, _split_at_blanks, desc="Splitting at blanks")
    if args.aligner == "encoder":
        from hf_xalign.modeling.loading import choose_device, load_encoder

        options["model"], options["tokenizer"] = load_encoder(args.model, choose_device(args.device))
    linked = align_words(
        text, args.aligner, args.symmetrization, keep_unlinked=True, sample_size=args.fit_pairs, **options
    )
    if args.gold is not None:
        print(_score(linked, args.gold))
        if args.output is None:
            return
    if args.format != "jsonl":
        lines = (" ".join(f"{i}-{j}" for i, j in row["links"]) + "\n" for row in linked.select_columns(["links"]))
    else:
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in linked.select_columns(list(LINKED)))
    if args.output is None:
        sys.stdout.writelines(lines)
        return
    with replacing(args.output) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


def _score(linked: Dataset, path: str) -> str:
    """Describe the links against the gold links of a file."""
    from hf_xalign.evaluation.alignment_error import alignment_error_rate
    from hf_xalign.links.files import read_gold

    sides = (map(len, linked[f"{side}_words"][:]) for side in ("source", "target"))
    gold = read_gold(path, list(zip(*sides)))
    found = linked.select(gold.rows)["links"][:]
    scores = alignment_error_rate(found, gold.sure, gold.possible)
    turned = [[(j, i) for i, j in links] for links in found]
    other = alignment_error_rate(turned, gold.sure, gold.possible)["alignment_error_rate"]
    if other + _CLEARLY < scores["alignment_error_rate"]:
        logger.warning("%s: turned, its links have an AER of %.1f%%. Write the source's word first", path, 100 * other)
    pairs = f"{len(gold.sure):,} of {len(linked):,} sentence pairs"
    possible = sum(map(len, gold.possible))
    return (
        f"gold: {pairs}, {sum(map(len, gold.sure)):,} sure and {possible:,} possible links, counted from {gold.base}\n"
        f"precision {scores['precision']:.1%}  recall {scores['recall']:.1%}  AER {scores['alignment_error_rate']:.1%}"
    )


def _warn_of_unsplit(sample: dict[str, list]) -> None:
    """Log a warning for languages whose text has no spaces between words, and no column of words."""
    from hf_xalign.data.words import lettered_words

    unsplit: dict[str, list[bool]] = {}
    for side in ("source", "target"):
        words_of = sample.get(f"{side}_words") or [None] * len(sample[side])
        for text, language, words in zip(sample[side], sample[f"{side}_lang"], words_of, strict=True):
            is_unsplit = words is None and len(text.split()) == 1 and len(lettered_words(text)) >= _SHORTEST
            unsplit.setdefault(language, []).append(is_unsplit)
    for language, unsplit_rows in unsplit.items():
        if (share := sum(unsplit_rows) / len(unsplit_rows)) >= _SHARE:
            logger.warning(
                "%s of the texts in %s have no spaces, so each is one word in Pharaoh links. Split them into words "
                "first, or use --format jsonl",
                f"{share:.0%}",
                language,
            )


def _split_at_blanks(batch: dict[str, list]) -> dict[str, list[list[str]]]:
    from hf_xalign.data.words import WORDS, batch_words

    return dict(zip(WORDS, batch_words(batch, blanks=True)))
