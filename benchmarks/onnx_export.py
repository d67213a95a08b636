"""Compare an encoder in PyTorch with its ONNX exports: states, file sizes, retrieval and seconds.

    python benchmarks/onnx_export.py                                     # 3 minutes on two cores
    python benchmarks/onnx_export.py --model runs/mao_linear_builtin --lang de

Aim: the states of 100 sentences, padded together, differ by at most 1e-4 from PyTorch's in float32. Prints word
retrieval (mean subword) and sentence retrieval (mean pooling, cosine) in %, and the seconds of scoring; not with
--lang, because such a graph has the map of one side alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import torch
from torch import nn

from hf_xalign.data.load import load_parallel
from hf_xalign.evaluation import score_retrieval
from hf_xalign.evaluation.sentences import score_sentences
from hf_xalign.links.frozen import make_evaluation_links
from hf_xalign.modeling.export import INPUTS, INT8, MODEL, export_onnx
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.loading import encoder_of, load, load_tokenizer
from hf_xalign.tables import table

SENTENCES, AIM = 100, 1e-4


class OnnxEncoder(nn.Module):
    """ONNX graph that is called like the encoder."""

    def __init__(self, path: Path, config: Any):
        super().__init__()
        self.session, self.config = onnxruntime.InferenceSession(path), config
        self.place = nn.Parameter(torch.zeros(()))  # names the device

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> SimpleNamespace:
        """Return the last layer's states."""
        given = dict(zip(INPUTS, (input_ids.numpy(), attention_mask.numpy()), strict=True))
        return SimpleNamespace(last_hidden_state=torch.from_numpy(self.session.run(None, given)[0]))


def main(argv: list[str] | None = None) -> None:
    """Export, score and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--lang", help="the language to export of a model with one map for each")
    parser.add_argument("--data", nargs="+", default=["builtin:de", "builtin:bn"], help="parallel text to score on")
    given = parser.parse_args(argv)
    model, tokenizer = encoder_of(load(given.model)).eval(), load_tokenizer(given.model)
    data = load_parallel(given.data, split="test")
    links = None if given.lang else make_evaluation_links(data, load_parallel(given.data, split="train"))
    batch = tokenizer(data["source"][:SENTENCES], padding=True, truncation=True, return_tensors="pt")
    inputs, real = {name: batch[name] for name in INPUTS}, batch["attention_mask"].bool()
    with tempfile.TemporaryDirectory() as work, language_context(model, given.lang), torch.inference_mode():
        wanted = model(**inputs).last_hidden_state[real]
        folder = export_onnx(model, tokenizer, Path(work) / "onnx", lang=given.lang, int8=True)
        rows = [["encoder", "MiB", "largest difference"]]
        weights = sum(tensor.nbytes for tensor in model.state_dict().values())
        for name in ("PyTorch", MODEL, INT8):
            encoder = model if name == "PyTorch" else OnnxEncoder(folder / name, model.config)
            off = (encoder(**inputs).last_hidden_state[real] - wanted).abs().max().item()
            size = weights if name == "PyTorch" else (folder / name).stat().st_size
            rows.append([name, f"{size / 2**20:,.0f}", f"{off:.1e}"])
            if links is not None:
                found = score(encoder, tokenizer, links, data)
                rows[0][3:], rows[-1][3:] = found.keys(), found.values()
            if name == MODEL:
                print(f"states of {SENTENCES} sentences within {AIM}: {'met' if off <= AIM else 'missed'}")
    print(table(rows, len(rows[0]) - 1))


def score(encoder: Any, tokenizer: Any, links: Any, data: Any) -> dict[str, str]:
    """Score words and sentences of each language, and time it."""
    start = time.perf_counter()
    words = score_retrieval(encoder, tokenizer, links, poolings=("mean",))
    sentences = score_sentences(encoder, tokenizer, data, poolings=("mean",))
    seconds = f"{time.perf_counter() - start:.0f}"
    found = {}
    for language in sorted(words):
        found[f"{language} words"] = f"{100 * words[language]['retrieval_mean']:.1f}"
        found[f"{language} sentences"] = f"{100 * sentences[language]['sentence_mean']:.1f}"
    return {**found, "seconds": seconds}


if __name__ == "__main__":
    main()
