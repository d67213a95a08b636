"""`hf-xalign report`: write an HTML report of a run."""

from __future__ import annotations

from dataclasses import dataclass

from hf_xalign.checks import setting

DESCRIPTION = """Write an HTML report of a run: scores before and after training, training curves, histograms of
distances, retrieval examples, and the settings of the run. The file needs no network.

The report reads results.json, the log of the last checkpoint, distances.json and retrievals.json of the folder.
--examples writes retrievals.json, the words whose nearest translation changed. It encodes the run's evaluation text
with the model and with its base."""


@dataclass(kw_only=True)
class Arguments:
    """The folder, the page, and the options of the examples."""

    folder: str = setting(positional=True, help="folder that a recipe wrote")
    output: str | None = setting(None, metavar="FILE", help="file to write (default: report.html in the folder)")
    examples: int | None = setting(None, least=1, help="first write retrievals.json with N examples per language")
    device: str | None = setting(None, help="cpu or cuda (default: the GPU if there is one)")


def run(args: Arguments) -> None:
    """Write retrievals.json if asked for, and the page."""
    from pathlib import Path

    from hf_xalign.cache import check_output, write_json
    from hf_xalign.data.sources import check_models
    from hf_xalign.record import EVAL_LINKS, read_record
    from hf_xalign.report import write_report

    check_models([args.folder], whole=False)
    if args.output is not None:
        check_output(args.output, file=True)
    if args.examples is not None:
        from hf_xalign.cli.pairs import Run, TextOptions, load_stages
        from hf_xalign.errors import InputError
        from hf_xalign.links.frozen import read_links
        from hf_xalign.modeling.loading import choose_device
        from hf_xalign.report.retrievals import FILENAME, changed_retrievals, retrieve_words

        run = Run(args.folder, Path(args.folder), read_record(args.folder))
        if not (file := run.folder / EVAL_LINKS).is_file():
            raise InputError(f"{args.folder}: this run kept no links, so it has no words to show. Omit --examples.")
        links, retrievals = read_links(file), []
        models = TextOptions(model=args.folder, base=run.record["base_model"]["name"])
        device, prompt = choose_device(args.device), run.setting("prompt")
        for _, name, model, tokenizer in load_stages(models, None, device, prompt, []):
            retrievals.append(retrieve_words(model, tokenizer, links, run.layer, f"Retrieving by {name}"))
            del model
        found = changed_retrievals(links, *retrievals, examples=args.examples)
        write_json(run.folder / FILENAME, found)
    print(f"saved: {write_report(args.folder, args.output)}")
