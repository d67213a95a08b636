"""`hf-xalign explore`: open a page to look at an encoder before and after alignment."""

from __future__ import annotations

import argparse
import os
import re

from hf_xalign.cli import pairs
from hf_xalign.errors import InputError
from hf_xalign.record import portable

DESCRIPTION = """Open a page to look at an encoder before and after alignment (extra `app`).

    hf-xalign explore runs/fao_embedded

Tabs: word similarities and predicted links of two sentences; nearest words of a word in each language; search for
sentences; linked words in two dimensions. Words and sentences are those of the run's held-out text.

results.json of the folder names the encoder before training and the text, eval_links.jsonl has its links; --base, and
--data or --links, take others. The page answers on this machine only, loads nothing from elsewhere, and takes at most
512 words."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder, the base, the options of the text and the address."""
    parser.add_argument("run", metavar="RUN", help="folder that a recipe wrote; with --base and a text also a Hub id")
    parser.add_argument("--base", metavar="MODEL", help="encoder before training (default: the one in results.json)")
    pairs.add_text(parser, "the run's held-out text")
    parser.add_argument("--max_pairs", type=int, default=500, metavar="N", help="pairs of each source or language")
    parser.add_argument("--layer", type=int, default=-1, help="layer of the vectors: -1 is the last, 0 the embeddings")
    parser.add_argument("--device", help="cpu or cuda (default: the GPU if there is one)")
    parser.add_argument("--host", default="127.0.0.1", help="address to answer on, and to open in the browser")
    parser.add_argument("--port", type=int, help="port to answer on (default: the first free one from 7860)")


def run(args: argparse.Namespace) -> None:
    """Load text and encoders, and serve the page until Ctrl-C."""
    from hf_xalign.builtin import recorded_name
    from hf_xalign.record import read_record

    pairs.check_text(args)
    run = pairs.find_run(args.run)
    base = args.base or (run and run.base) or recorded_name(read_record(args.run)["base_model"]["name"])
    if not (run or args.data or args.links):
        raise InputError(f"{args.run} is no run with held-out text: name a text by --data or --links")

    from hf_xalign.explore.held_out import HeldOut
    from hf_xalign.explore.page import Views, check_gradio, make_page, serve
    from hf_xalign.modeling.loading import choose_device, load_encoder

    check_gradio()
    text, lines = pairs.read_text(args, run, shown=_last_names)
    device = choose_device(args.device)
    stages = {
        stage: HeldOut(*load_encoder(name, device), text, layer=args.layer, desc=f"Encoding by {name}")
        for stage, name in (("before", base), ("after", args.run))
    }
    about = f"Before: {_last_names(base)}. After: {_last_names(args.run)}. Text: {'. '.join(lines)}."
    page = make_page(Views(stages, text), "Before and after alignment", about)
    print(f"open {serve(page, args.host, args.port)} (Ctrl-C ends it)", flush=True)
    page.block_thread()


def _last_names(names: str) -> str:
    """Shorten files and folders to their last names, as the page shows them: `de=/home/me/a.tsv` is `de=a.tsv`."""
    path = os.path.expanduser(names)
    if os.path.exists(path):
        return portable(os.path.abspath(path))
    parts = re.findall("[^=,]+|[=,]", names)
    return "".join(map(_last_names, parts)) if len(parts) > 1 else portable(names)
