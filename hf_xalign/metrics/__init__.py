"""`evaluate` modules that ship with the package."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

from hf_xalign.checks import check_choice
from hf_xalign.score import module_names

if TYPE_CHECKING:
    from evaluate import EvaluationModule


def names() -> list[str]:
    """Return the names of the modules that `load` accepts."""
    return module_names()


def load(name: str, **kwargs: Any) -> EvaluationModule:
    """Load one of the package's `evaluate` modules, without a network.

    Args:
        name: one of `names()`, such as "word_retrieval".
        **kwargs: options of `evaluate.load`, such as `num_process` and `process_id`.

    Raises:
        InputError: there is no module of this name.
    """
    check_choice(names(), metric=name)
    import evaluate  # seconds, because it imports transformers' pipelines

    with as_file(files(__name__) / name / f"{name}.py") as script:
        return evaluate.load(str(script), **kwargs)
