"""Ask why an encoder loses by the published CSLS of MAO's scripts although it gains by CSLS.

    python benchmarks/published_csls.py builtin runs/fao_last --links runs/fao_last/eval_links.jsonl   # a minute

The published variant divides by the norm of the whole matrix, so that lengths of vectors count. Prints, for each
encoder, word retrieval towards the pivot by both variants with the vectors as they are, of length 1, minus the mean of
their language, and both; and what the vectors have in common.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from hf_xalign.evaluation.scores import Protocol, held_out_words
from hf_xalign.links.frozen import read_links
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.score import Score
from hf_xalign.search.csls import nearest_neighbours

PROTOCOLS = (Protocol(), Protocol("legacy", legacy=True))
CHANGES = {
    "as they are": lambda vectors: vectors,
    "length 1": lambda vectors: normalize(vectors, dim=1),
    "minus the mean": lambda vectors: vectors - vectors.mean(0),
    "minus the mean, length 1": lambda vectors: normalize(vectors - vectors.mean(0), dim=1),
}


def main() -> None:
    """Print the table of each encoder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoders", nargs="+")
    parser.add_argument("--links", type=Path, required=True, help="held-out links of one language, from a run")
    parser.add_argument("--pooling", default="last")
    given = parser.parse_args()
    rows = read_links(given.links)
    for name in given.encoders:
        encoder = load_encoder(name, torch.device("cpu"))
        words = held_out_words({"source": encoder, "target": encoder}, rows, PROTOCOLS, pooling=given.pooling)
        scored = ~words.kinds.any(1) & words.present
        source, target = words.source[scored, 0], words.target[scored, 0]
        found = torch.bincount(nearest_neighbours(source, target, legacy=True)[0], minlength=len(target))
        hubs = found.sort(descending=True).values[: len(target) // 100].sum() / len(source)
        print(f"\n{name}: cosine of two words {common(source):.3f} and {common(target):.3f} (pivot)")
        print(f"  the 1% of words that the published variant finds most answer {100 * hubs:.1f}% of the queries")
        for label, change in CHANGES.items():
            scores = words.score(
                Score("retrieval", given.pooling), PROTOCOLS, project=lambda *sides, by=change: tuple(map(by, sides))
            )
            plain, published = (scores[f"retrieval_{given.pooling}_to_pivot{end}"] for end in ("", ", legacy"))
            print(f"  {label:26} CSLS {100 * plain:.1f}  published {100 * published:.1f}")


def common(vectors: Tensor) -> float:
    """The mean cosine of two different words."""
    total = normalize(vectors, dim=1).sum(0)
    return ((total @ total - len(vectors)) / (len(vectors) * (len(vectors) - 1))).item()


if __name__ == "__main__":
    main()
