"""`evaluate` module: gap between supervised and zero-shot scores."""

from __future__ import annotations

import datasets
import evaluate

from hf_xalign.evaluation.transfer import transfer_gap

_DESCRIPTION = """
The transfer gap is delta = SUP - ZS: the score of a model that was fine-tuned and tested on the target language, minus
that of one fine-tuned on another language and tested on the same target-language set. Lower is better.
"""

_KWARGS_DESCRIPTION = """
Args:
    supervised: scores of the model that was trained on the target language, one for each item: a test example where
        the score is a mean over examples, else a test set or a seed.
    zero_shot: scores of the model that was trained on the other language, for the same items in the same order.
    bootstrap: resamples of delta's 95% interval over items, in pairs; 0 (the default) for none.
    seed: of the resampling, 0.

Returns:
    supervised, zero_shot, delta: means over the items, on the scale of the scores. delta_low, delta_high: the
    interval. items: how many there were.

Examples:
    >>> from hf_xalign import metrics
    >>> gap = metrics.load("transfer_gap")
    >>> scores = gap.compute(supervised=[1.0, 1.0, 0.0, 1.0], zero_shot=[1.0, 0.0, 0.0, 0.0])
    >>> scores["supervised"], scores["zero_shot"], scores["delta"], scores["items"]
    (0.75, 0.25, 0.5, 4)
"""

_CITATION = """
@misc{tang-etal-2022-align,
    title = "ALIGN-MLM: Word Embedding Alignment is Crucial for Multilingual Pre-training",
    author = "Tang, Henry and Deshpande, Ameet and Narasimhan, Karthik",
    year = "2022",
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class TransferGap(evaluate.Metric):
    """SUP, ZS and their difference, one row an item."""

    def _info(self) -> evaluate.MetricInfo:
        score = datasets.Value("float64")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"supervised": score, "zero_shot": score}),
        )

    def _compute(self, supervised, zero_shot, bootstrap=0, seed=0):
        return transfer_gap(supervised, zero_shot, bootstrap=bootstrap, seed=seed)
