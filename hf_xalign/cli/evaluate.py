"""`hf-xalign evaluate`: score word and sentence retrieval of a model, and frozen probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hf_xalign.cache import check_output, write_json
from hf_xalign.checks import setting
from hf_xalign.cli import pairs
from hf_xalign.cli.pairs import TextOptions
from hf_xalign.errors import InputError

if TYPE_CHECKING:
    from hf_xalign.evaluation.scores import Examples, Scores
    from hf_xalign.trainers.base.probes import Probe, Probed

DESCRIPTION = """Score a model, and compare it with its base.

    hf-xalign evaluate runs/fao_builtin
    hf-xalign evaluate runs/my_hindi --data hi=other_text.tsv
    hf-xalign evaluate owner/name --base FacebookAI/xlm-roberta-base --data bn=my_test.jsonl
    hf-xalign evaluate runs/fao_builtin --probe slots en=train.jsonl en=test.jsonl bn=bengali.jsonl

The word score is the share of linked words whose nearest word of the other language, by CSLS, is the linked one. The
sentence score is the share of sentences whose nearest sentence, by cosine, is the translation. `to_pivot` and
`from_pivot` are the two directions. `pool` is the number of candidates; scores with different pools are not
comparable. --protocol mao adds the published protocol, in rows that end in `, mao`: words have the vector of their
last subword, identical words, numbers and special tokens are linked too, and CSLS is the published variant.

--probe trains a linear classifier on the frozen encoder's vectors of labelled words (or texts) in the first file, and
tests it on the other files. The score is accuracy, or the mean F1 of the other labels if words have the label O. A
probe needs no pairs, so only probes are run unless --data or --links is given too.

--examples FOLDER writes the scores of single sentences, which `hf-xalign compare FOLDER/NAME/before FOLDER/NAME/after`
tests. NAME is retrieval_mean, sentence_mean or the name of a probe. Give the same folder for runs with other seeds.

If MODEL is the folder of a run, its base, held-out text, links, pooling, protocols and batch size are used, so the
scores are those of the run's own table. Other text (--data) is linked by fast_align, which is fitted on it and on the
run's training text, if that is still there. --links takes word-aligned text, as another run's eval_links.jsonl."""


@dataclass(kw_only=True)
class Arguments(TextOptions):
    """The scores, and the options of the models and the text."""

    probe: list[list[str]] | None = setting(
        None,
        metavar=("NAME", "LANG=FILE"),
        help="a name, or name:column of the labels, then the file to train on and the files to test on (JSON, JSONL, "
        "TSV, CSV, CoNLL or CoNLL-U; builtin:en, de, bn are parts of speech); can be repeated",
    )
    max_pairs: int | None = setting(
        None, least=1, help="use the first N pairs of each source or language, and test probes on N sentences"
    )
    tasks: list[Literal["words", "sentences"]] = setting(None, help="what to score")
    protocol: list[str] | None = setting(
        None,
        metavar="NAME",
        help="also score words by these protocols: mao (as published), or identical, specials, legacy, joined by + "
        "(default: those of the run)",
    )
    prompt: str | None = setting(
        None, help="text before every sentence, such as 'query: ' for e5 (default: the one in the run's training)"
    )
    batch_size: int | None = setting(
        None, least=1, help="sentences per forward pass (default: that of the run, otherwise 64)"
    )
    examples: str | None = setting(None, metavar="FOLDER", help="write the scores of single sentences, for compare")
    json: str | None = setting(None, metavar="FILE", help="also write the scores to this file, as fractions")

    def __post_init__(self) -> None:
        self.tasks = self.tasks or ["words", "sentences"]


def run(args: Arguments) -> None:
    """Score the models and print a table."""
    job = pairs.find_model(args)
    if args.json:
        check_output(args.json, file=True)

    from hf_xalign.data.encoding import check_pieces
    from hf_xalign.data.load import sources
    from hf_xalign.evaluation import score_retrieval
    from hf_xalign.evaluation.scores import fill_words, merge_scores, read_protocols
    from hf_xalign.evaluation.sentences import score_sentences
    from hf_xalign.modeling.loading import choose_device
    from hf_xalign.modeling.word_vectors import sharing_states
    from hf_xalign.modeling.xalign.config import XAlignConfig
    from hf_xalign.record import to_plain
    from hf_xalign.tables import score_columns, score_rows, table
    from hf_xalign.trainers.base.probes import keep_examples, read_probes

    protocols = read_protocols(args.protocol or (job.setting("protocol") if job else None))
    device = choose_device(args.device)
    probes = read_probes(list(chain.from_iterable(args.probe or ())), args.max_pairs)
    seed = _check_examples(args, job, probes) if args.examples else 0
    text, lines = None, list[str]()
    if not probes or args.data or args.links:
        text, lines = pairs.read_text(args, job, linked="words" in args.tasks)
    shared, poolings, whole_words = _options(args, job)
    prompt = args.prompt if args.prompt is not None or job is None else job.setting("prompt")
    names: dict[str, str | None] = {"before": None, "after": args.model}
    scores: dict[str, Scores] = {"before": {}, "after": {}}
    examples: dict[str, Examples] = {"before": {}, "after": {}}
    probed: list[Probed] = []
    for stage, name, model, tokenizer in pairs.load_stages(args, job, device, prompt, lines):
        names[stage] = name
        with sharing_states(model, keep=getattr(text, "_fingerprint", "") if stage == "before" else ""):
            if text is not None:
                check_pieces(text, tokenizer, f"{name}, the text")
                scored = shared | {"desc": f"Scoring {name}", "examples": examples[stage] if args.examples else None}
                if "words" in args.tasks:
                    module = isinstance(getattr(model, "active_peft_config", None), XAlignConfig)
                    words = scored | {"poolings": poolings, "protocols": protocols, "all_occurrences": True}
                    words["word_view"] = whole_words and module
                    scores[stage] = score_retrieval(model, tokenizer, text, **words)
                if "sentences" in args.tasks:
                    scores[stage] = merge_scores(scores[stage], score_sentences(model, tokenizer, text, **scored))
            for probe in probes:
                probed.append((stage, probe, probe.examples(model, tokenizer, **shared)))
                scores[stage] = merge_scores(scores[stage], probe.scores(probed[-1][2]))
        pooling = getattr(getattr(model, "active_peft_config", None), "pooling", "")
        del model
    fill_words(scores, pooling)
    # Written at the end, so that an interrupted command can be run again.
    if args.examples:
        fill_words(examples, pooling)
        keep_examples(Path(args.examples), seed, examples, probed, sources(text) if text else ())
    record = {"scores": scores}
    rows = [score_columns(record), *score_rows(record)]
    if not names["before"]:
        rows = [(language, metric, after) for language, metric, _, after, _ in rows]
        rows[0] = ("language", "metric", "score")
        if job is not None and job.record and not job.base:
            lines.append("before is missing: the run began with new weights or a model object. Name one by --base.")
    print("\n".join([*lines, *[""] * bool(lines), table(rows, len(rows[0]) - 2)]))
    if any("retrieval_words" in found for found in scores["after"].values()):
        print("\nretrieval_words: the module reads whole words; a linear map gives the scores of retrieval_mean.")
    if args.json:
        write_json(Path(args.json), to_plain({"models": names, "text": lines, "scores": scores}))


def _options(args: Arguments, job: pairs.Run | None) -> tuple[dict[str, Any], list[str], bool]:
    """Return layer and batch size of the scores, the poolings, and whether a module's whole words are scored too."""
    poolings, layer, batch_size = ["mean", "last"], -1, 64
    mapping = job is not None and job.record.get("method") == "mapping"
    if job and mapping:
        layer, batch_size = job.layer, job.setting("batch_size", 64)
        poolings.append(job.setting("pooling", "mean"))
    elif job and job.record:
        batch_size = job.setting("per_device_eval_batch_size", 8)
    shared = {"layer": layer if args.layer is None else args.layer, "batch_size": args.batch_size or batch_size}
    return shared, list(dict.fromkeys(poolings)), args.layer is None and not mapping


def _check_examples(args: Arguments, job: pairs.Run | None, probes: Sequence[Probe]) -> int:
    """Return the seed in the names of example scores (of a run, or 0), if there are no such scores yet."""
    assert args.examples is not None
    check_output(args.examples)
    seed = job.record.get("seed", 0) if job else 0
    stages = ("before", "after") if args.base or (job and job.base) else ("after",)
    names = [probe.name for probe in probes]
    if not probes or args.data or args.links:
        names += ["retrieval_*" if task == "words" else "sentence_*" for task in args.tasks]
    for name, stage in product(names, stages):
        for there in Path(args.examples).glob(f"{name}/{stage}/seed-{seed}"):
            raise InputError(f"{there}: there are example scores already. Give another folder to --examples.")
    return seed
