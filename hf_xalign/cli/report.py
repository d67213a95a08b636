"""`hf-xalign report`: everything about a run on one HTML page."""

from __future__ import annotations

import argparse

from hf_xalign.cli.terminal import show

DESCRIPTION = """Write one HTML file about a run that opens without a network: scores before and after, the curves of
training, histograms of distances, examples of what is retrieved, and how all of it was made.

It shows what the folder holds: results.json, the log of the last checkpoint, distances.json, retrievals.json. The
last one, words whose nearest translation has changed, is made by --examples, which encodes the run's evaluation text
with the model and with its base."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, the page, and whether examples are made."""
    parser.add_argument("folder", help="a folder that a recipe wrote")
    parser.add_argument("--output", metavar="FILE", help="the page; report.html in the folder by default")
    parser.add_argument("--examples", type=int, metavar="N", help="first retrieve, and keep N examples a language")
    parser.add_argument("--seed", type=int, default=0, help="of the draw of examples")
    parser.add_argument("--device", help="cpu or cuda; the GPU by default, where there is one")


def run(args: argparse.Namespace) -> None:
    """Write the page."""
    from hf_xalign.report import write_report

    if args.examples is not None:
        _retrieve(args)
    show(f"saved: {write_report(args.folder, args.output)}")


def _retrieve(args: argparse.Namespace) -> None:
    """Write retrievals.json."""
    from pathlib import Path

    from hf_xalign.cli.models import choose_device, load_encoder
    from hf_xalign.errors import InputError
    from hf_xalign.links.frozen import read_links
    from hf_xalign.record import read_record
    from hf_xalign.report.retrievals import changed_retrievals, retrieve_words, write_retrievals

    if args.examples < 1:
        raise InputError(f"--examples {args.examples}: at least one is needed")
    base = read_record(args.folder)["base_model"]["name"]
    links = read_links(Path(args.folder) / "eval_links.jsonl")
    device = choose_device(args.device)
    found = []
    for name in (base, args.folder):  # one model at a time is in memory
        model, tokenizer = load_encoder(str(name), device)
        found.append(retrieve_words(model, tokenizer, links, desc=f"Retrieving by {name}"))
        del model
    write_retrievals(args.folder, changed_retrievals(links, *found, examples=args.examples, seed=args.seed))
