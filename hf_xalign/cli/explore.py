"""`hf-xalign explore`: open a page to look at an encoder before and after alignment."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass

from hf_xalign.checks import require, setting
from hf_xalign.cli import pairs
from hf_xalign.cli.pairs import TextOptions
from hf_xalign.record import portable

DESCRIPTION = """Open a page to look at an encoder before and after alignment (extra `app`).

    hf-xalign explore runs/fao_builtin
    hf-xalign explore builtin

Tabs: word similarities and predicted links of two sentences; nearest words in each language; search for sentences.

Base, text, links, layer and prompt are the run's, as in `hf-xalign evaluate`. A model that is no run is shown alone,
with builtin:de and builtin:bn; --base, and --data or --links, take others. The page answers on this machine only,
and loads nothing from elsewhere."""


@dataclass(kw_only=True)
class Arguments(TextOptions):
    """The options of the models and the text, and the address."""

    max_pairs: int = setting(500, least=1, help="pairs of each source or language")
    host: str = setting("127.0.0.1", help="address to answer on, and to open in the browser")
    port: int | None = setting(None, help="port to answer on (default: the first free one from 7860)")


def run(args: Arguments) -> None:
    """Load text and encoders, and serve the page until Ctrl-C."""
    job = pairs.find_model(args)

    from hf_xalign.explore.held_out import HeldOut
    from hf_xalign.explore.page import make_page, serve
    from hf_xalign.modeling.loading import choose_device

    require("gradio", "the page", "app")  # before models are loaded
    device = choose_device(args.device)
    text, lines = pairs.read_text(args, job, shown=_last_names)
    stages, names, missing = {}, {}, list[str]()
    layer = args.layer if args.layer is not None else job.layer if job else -1
    prompt = job.setting("prompt") if job else None
    for stage, name, model, tokenizer in pairs.load_stages(args, job, device, prompt, missing):
        stages[stage] = HeldOut(model, tokenizer, text, layer=layer)
        names[stage] = _last_names(name)
    sys.stderr.writelines(f"{line}\n" for line in missing)
    title = "Before and after alignment"
    models = ". ".join(f"{stage.capitalize()}: {name}" for stage, name in names.items())
    if len(stages) == 1:
        stages = {names["after"]: stages["after"]}
        title, models = "An encoder of several languages", f"Model: {names['after']}"
    page = make_page(stages, text, title, f"{models}. Text: {'. '.join(lines)}.")
    print(f"open {serve(page, args.host, args.port)} (Ctrl-C ends it)", flush=True)
    page.block_thread()


def _last_names(names: str) -> str:
    """Shorten files and folders to their last names, as the page shows them: `de=/home/me/a.tsv` is `de=a.tsv`."""
    path = os.path.expanduser(names)
    if os.path.exists(path):
        return portable(os.path.abspath(path))
    pieces = re.findall("[^=,]+|[=,]", names)
    return "".join(map(_last_names, pieces)) if len(pieces) > 1 else portable(names)
