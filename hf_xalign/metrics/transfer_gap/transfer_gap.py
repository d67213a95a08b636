"""`evaluate` module: gap between supervised and zero-shot scores."""

from typing import Any

from datasets import Features

from hf_xalign.evaluation.transfer import transfer_gap
from hf_xalign.metrics import base


class TransferGap(base.Module):
    """The transfer gap is delta = SUP - ZS: the score of a model that was fine-tuned and tested on the target
    language, minus that of one fine-tuned on another language and tested on the same set. Lower is better.

    Examples:
        >>> from hf_xalign import metrics
        >>> gap = metrics.load("transfer_gap")
        >>> scores = gap.compute(supervised=[1.0, 1.0, 0.0, 1.0], zero_shot=[1.0, 0.0, 0.0, 0.0])
        >>> scores["supervised"], scores["zero_shot"], scores["delta"], scores["items"]
        (0.75, 0.25, 0.5, 4)
    """

    columns = Features({"supervised": base.NUMBER, "zero_shot": base.NUMBER})

    def _compute(self, **arguments: Any) -> dict:
        return transfer_gap(**arguments)
