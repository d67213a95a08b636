"""Train FAO on the links of each aligner, from few pairs and from many, and score word and sentence retrieval.

    python benchmarks/links_for_fao.py --train de=de.train.jsonl hi=hi.train.jsonl bn=bn.train.jsonl \
        --test de=de.test.jsonl hi=hi.test.jsonl bn=bn.test.jsonl --sizes 200 2000 --steps 100

Each run trains preset `joint` on the first pairs of every language. One aligner links them all, and sees no other.
All runs are scored on the same held-out links. They are those of fast_align, fitted on the test text and on the first
`--fit` pairs of the training text. So no run is favoured by its number of pairs, but fast_align by the kind of link.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from datasets import Dataset, disable_progress_bars

from hf_xalign.data.load import load_parallel
from hf_xalign.evaluation.scores import score_retrieval
from hf_xalign.evaluation.sentences import score_sentences
from hf_xalign.links import Linking
from hf_xalign.links.counts import link_statistics
from hf_xalign.links.frozen import make_evaluation_links
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.trainers import FAOConfig, FAOTrainer

ALIGNERS = {
    "fast_align": Linking(),
    "eflomal": Linking("eflomal"),
    "hmm": Linking("hmm"),
    "encoder": Linking("encoder"),
    "encoder, several": Linking("encoder", one_to_one=False),
}


def main() -> None:
    """Print one Markdown row for each number of pairs and aligner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", required=True, help="LANG=FILE of each language")
    parser.add_argument("--test", nargs="+", required=True, help="held-out text of the same languages")
    parser.add_argument("--sizes", nargs="+", type=int, default=[200, 2000], help="pairs of each language")
    parser.add_argument("--aligners", nargs="+", choices=ALIGNERS, default=[*ALIGNERS])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--drawn", type=int, help="train on so many of the linked pairs of each language")
    parser.add_argument("--held_out", type=int, default=300, help="held-out pairs of each language that are scored")
    parser.add_argument("--fit", type=int, default=3000, help="training pairs that the held-out links are fitted on")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    disable_progress_bars()
    evaluation = load_parallel(args.test, max_pairs=args.held_out)
    evaluation = make_evaluation_links(evaluation, load_parallel(args.train, max_pairs=args.fit))
    languages = sorted(evaluation.unique("source_lang"))
    print(f"{len(evaluation)} held-out pairs, {sum(map(len, evaluation['links'])):,} links; {args.steps} steps\n")
    print("| pairs | aligner | links a pair |" + "".join(f" words {lang}, sentences {lang} |" for lang in languages))
    print("|---|---|---:|" + "---:|" * len(languages))
    model, tokenizer = load_encoder("builtin", torch.device("cpu"))
    row("0", "no training", "", scores_of(model, tokenizer, evaluation))
    for size in args.sizes:
        pairs = load_parallel(args.train, max_pairs=size, keep_unlinked=True)
        for name in args.aligners:
            start = time.perf_counter()
            linking = replace(ALIGNERS[name], max_pairs=args.drawn, seed=args.seed)
            linked = linking.apply(pairs, model=model, tokenizer=tokenizer).pairs
            counts = link_statistics(linked)
            share = "/".join(f"{counts[f'{lang}-en'].links / counts[f'{lang}-en'].pairs:.1f}" for lang in languages)
            run = {"max_steps": args.steps, "seed": args.seed, "save_strategy": "no"}
            run["per_device_train_batch_size"] = args.batch_size
            settings = FAOConfig(tempfile.mkdtemp(), use_cpu=True, report_to="none", **run)
            encoder, _ = load_encoder("builtin", torch.device("cpu"))
            trainer = FAOTrainer(encoder, settings, train_dataset=linked, processing_class=tokenizer)
            trainer.train()
            scores = scores_of(trainer.model.eval(), tokenizer, evaluation)
            row(f"{size:,}", name, share, scores, f"{time.perf_counter() - start:.0f} s")


def scores_of(model: torch.nn.Module, tokenizer: object, evaluation: Dataset) -> dict[str, tuple[float, float]]:
    """Return word and sentence retrieval by language, in %."""
    words = score_retrieval(model, tokenizer, evaluation)
    sentences = score_sentences(model, tokenizer, evaluation, poolings=("mean",))
    return {
        lang: (100 * words[lang]["retrieval_mean"], 100 * sentences[lang]["sentence_mean"]) for lang in sorted(words)
    }


def row(size: str, name: str, links: str, scores: dict[str, tuple[float, float]], seconds: str = "") -> None:
    """Print one row of the table."""
    cells = "".join(f" {words:.1f}, {sentences:.1f} |" for words, sentences in scores.values())
    print(f"| {size} | {name} | {links} |{cells} {seconds}", flush=True)


if __name__ == "__main__":
    main()
