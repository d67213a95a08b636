"""`hf-xalign evaluate`: score word and sentence retrieval of a model, and frozen probes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_xalign.cache import check_output
from hf_xalign.cli import pairs
from hf_xalign.data.sources import check_models
from hf_xalign.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from hf_xalign.evaluation.scores import Protocol
    from hf_xalign.recipes.parts.probes import Probe
    from hf_xalign.statistics.examples import ExampleScores

DESCRIPTION = """Score a model, and compare it with its base.

    hf-xalign evaluate runs/fao_embedded --base embedded
    hf-xalign evaluate owner/name --base FacebookAI/xlm-roberta-base --data bn=my_test.jsonl
    hf-xalign evaluate runs/fao_embedded --base embedded --probe slots en=train.jsonl en=test.jsonl bn=bengali.jsonl

Words: share of linked words whose nearest word of the other language, by CSLS, is the linked one.
Sentences: share of sentences whose nearest sentence, by cosine, is the translation.
--protocol mao adds the published protocol, in rows that end in `, mao`: last subword, identical words, numbers and
special tokens are linked words too, and the published variant of CSLS.
`to_pivot` and `from_pivot` are the two directions. `pool` is the number of candidates: scores with different pools
are not comparable.
Probes: a linear classifier on the frozen encoder's vectors learns labelled words (or texts) of the first file and is
tested on the others: accuracy, or where words have the label O, the mean F1 of the other labels. It needs no pairs, so
only probes are run unless --data or --links is there too. --examples FOLDER keeps every example's part of the score,
which `hf-xalign compare FOLDER/NAME/before FOLDER/NAME/after` tests; runs of other seeds add theirs there.
By default the words are aligned as in the recipes; --links takes those of a run, eval_links.jsonl in its folder."""

_TASKS = ("words", "sentences")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the models and the options of the text."""
    parser.add_argument("model", metavar="MODEL", help="folder, Hub id or embedded; also an adapter or mapped encoder")
    parser.add_argument("--base", metavar="MODEL", help="model to compare with: the encoder before training")
    pairs.add_text(parser, "embedded:de embedded:bn")
    parser.add_argument(
        "--probe",
        nargs="+",
        action="append",
        metavar=("NAME", "LANG=FILE"),
        help="labelled text (JSON, JSONL, TSV, CSV, CoNLL or CoNLL-U; embedded:en, de, bn are parts of speech): a "
        "name, or name:column of the labels, the file to learn from and those to test on; can be repeated",
    )
    parser.add_argument(
        "--max_pairs",
        type=int,
        metavar="N",
        help="use the first N pairs of each source, or sentences to test a probe on",
    )
    parser.add_argument("--tasks", nargs="+", default=list(_TASKS), choices=_TASKS, help="what to score")
    parser.add_argument(
        "--protocol",
        nargs="+",
        metavar="NAME",
        help="score words by these protocols too: mao (as published), or identical, specials, legacy, joined by +",
    )
    parser.add_argument("--layer", type=int, default=-1, help="layer to score: -1 is the last, 0 the embeddings")
    parser.add_argument("--batch_size", type=int, default=64, help="sentences per forward pass")
    parser.add_argument("--device", help="cpu or cuda (default: the GPU if there is one)")
    parser.add_argument("--examples", metavar="FOLDER", help="keep the probes' example scores here, for compare")
    parser.add_argument("--json", metavar="FILE", help="also write the scores to this file, as shares")


def run(args: argparse.Namespace) -> None:
    """Score the models and print a table."""
    check_models([args.model, args.base])
    if args.json:
        check_output(args.json, file=True)
    pairs.check_text(args)
    if args.examples and not args.probe:
        raise InputError("examples: only probes keep example scores: give a --probe too")

    from hf_xalign.evaluation.scores import merge_scores, read_protocols
    from hf_xalign.modeling.loading import choose_device, load_encoder
    from hf_xalign.recipes.parts.probes import read_probes
    from hf_xalign.record import to_plain, write_text
    from hf_xalign.tables import score_columns, score_rows, table

    protocols = read_protocols(args.protocol)
    device = choose_device(args.device)
    probes = read_probes([word for words in args.probe or () for word in words], args.max_pairs)
    folders = _seed_folders(args, probes) if args.examples else {}
    text = None if probes and not (args.data or args.links) else pairs.read_text(args, linked="words" in args.tasks)
    names = {"before": args.base, "after": args.model}
    scores: dict[str, Any] = {"before": {}, "after": {}}
    examples: dict[tuple[str, int], dict[str, ExampleScores]] = {}
    for stage, name in names.items():  # only one model in memory at a time
        if name:
            model, tokenizer = load_encoder(name, device)
            scores[stage] = {} if text is None else _score(model, tokenizer, text, args, name, protocols)
            for number, probe in enumerate(probes):
                found = probe.examples(model, tokenizer, layer=args.layer, batch_size=args.batch_size)
                scores[stage] = merge_scores(scores[stage], probe.scores(found))
                examples[stage, number] = found
            del model
    # All at the end: a run that is interrupted before leaves nothing that the next one would refuse.
    for stage, number in folders:
        probes[number].save(examples[stage, number], folders[stage, number])
    record = {"scores": scores}
    rows = [score_columns(record), *score_rows(record)]
    if not args.base:
        rows = [(language, metric, after) for language, metric, _, after, _ in rows]
        rows[0] = ("language", "metric", "score")
    print(table(rows, len(rows[0]) - 2))
    if args.json:
        content = {"models": names, "scores": scores}
        write_text(Path(args.json), json.dumps(to_plain(content), ensure_ascii=False, indent=2) + "\n")


def _seed_folders(args: argparse.Namespace, probes: Sequence[Probe]) -> dict[tuple[str, int], Path]:
    """Return where example scores go, by stage and number of the probe; the seed is the run's, 0 for another model.

    Raises:
        InputError: scores are there already, or the folder cannot be written to.
    """
    from hf_xalign.record import FILENAME, read_record

    check_output(args.examples)
    seed = read_record(args.model)["seed"] if (Path(args.model) / FILENAME).is_file() else 0
    stages = ("before", "after") if args.base else ("after",)
    folders = {
        (stage, number): Path(args.examples) / probe.name / stage / f"seed-{seed}"
        for stage in stages
        for number, probe in enumerate(probes)
    }
    for folder in folders.values():
        if folder.exists():
            raise InputError(f"{folder}: holds example scores already; give another --examples folder")
    return folders


def _score(
    model: Any, tokenizer: Any, text: Dataset, args: argparse.Namespace, name: str, protocols: Sequence[Protocol]
) -> dict[str, Any]:
    """Score one model; returns {language: {metric: value}}."""
    from hf_xalign.evaluation import score_retrieval
    from hf_xalign.evaluation.scores import merge_scores
    from hf_xalign.evaluation.sentence_scores import score_sentences

    options: dict[str, Any] = {"layer": args.layer, "batch_size": args.batch_size, "desc": f"Scoring {name}"}
    scores: dict[str, Any] = {}
    if "words" in args.tasks:
        own: dict[str, Any] = {"poolings": ("mean", "last"), "all_occurrences": True, "protocols": protocols}
        scores = score_retrieval(model, tokenizer, text, **own, **options)
    if "sentences" in args.tasks:
        scores = merge_scores(scores, score_sentences(model, tokenizer, text, **options))
    return scores
