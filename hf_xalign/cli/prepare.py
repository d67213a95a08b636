"""`hf-xalign prepare`: clean noisy sentence pairs."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hf_xalign.checks import setting
from hf_xalign.data.sources import PairColumns
from hf_xalign.prepare.rules import STEPS, Limits

DESCRIPTION = """Clean noisy sentence pairs, and write Parquet shards and a record.

    hf-xalign prepare de=opus/*.tsv.gz bn=pairs.jsonl --output clean --test_data de=test.jsonl
    hf-xalign prepare de=crawl.de,crawl.en --output clean --skip numbers language --margin builtin

SOURCE is LANG=FILE (TSV, CSV, JSONL, JSON, Parquet, TMX; .gz, * and ?), LANG=FILE1,FILE2, a Hub dataset or builtin:de.

The folder gets part-*.parquet and prepare.json: settings, and counts and examples of what each step removed. Run the
same command again to resume a killed run. The result does not depend on --workers."""


@dataclass(kw_only=True)
class Arguments(PairColumns, Limits):
    """The input, the steps and the output."""

    sources: list[str] = setting(positional=True, metavar="SOURCE", help="sentence pairs, see above")
    split: str = setting("train", help="split of built-in and Hub text")
    output: str = setting(metavar="FOLDER", help="folder to write")
    test_data: list[str] = setting([], metavar="SOURCE", help="test sets whose sentences are removed from the pairs")
    skip: list[str] = setting(
        [],
        metavar="STEP",
        help="steps to leave out; each removes: " + "; ".join(f"{step} ({what})" for step, what in STEPS.items()),
    )
    margin: str | None = setting(None, metavar="MODEL", help="score pairs by this encoder: Hub id, folder or builtin")
    device: str | None = setting(None, help="device of the encoder: cpu or cuda (default: the GPU if there is one)")
    shard_pairs: int = setting(1_000_000, least=1, help="pairs in a shard")
    workers: int | None = setting(None, least=1, help="worker processes (default: one for each core)")


def run(args: Arguments) -> None:
    """Clean the pairs and print what each step removed."""
    from hf_xalign.environment import usable_cores
    from hf_xalign.prepare.pipeline import prepare
    from hf_xalign.tables import table

    limits = Limits(**{field.name: getattr(args, field.name) for field in fields(Limits)})
    encoder = None
    if args.margin:
        from hf_xalign.modeling.loading import choose_device, load_encoder

        encoder = load_encoder(args.margin, choose_device(args.device))
    record = prepare(
        args.sources,
        args.output,
        limits,
        test_sources=args.test_data,
        encoder=encoder,
        shard_pairs=args.shard_pairs,
        workers=usable_cores() if args.workers is None else args.workers,
        split=args.split,
        **args.columns(),
    )
    languages = list(record["removed"])
    rows = []
    for step in record["removed"][languages[0]]:
        if step not in record["limits"]["skip"]:
            rows.append([step, *(f"{record['removed'][name][step]:,}" for name in languages)])
    print(table([["removed by", *languages], *rows], len(languages)))
    counts = record["pairs"]
    print(f"{counts['kept']:,} of {counts['read']:,} pairs are left, in {len(record['shards'])} shards: {args.output}")
