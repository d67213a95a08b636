"""What every recipe does the same way: its data arguments, how it fails, how it ends."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from hf_xalign.errors import DISK_FULL, InputError, NonFiniteLossError

logger = logging.getLogger(__name__)


@dataclass
class ParallelText:
    """The text of a run."""

    train_data: list[str] = field(
        default_factory=lambda: ["embedded:de", "embedded:bn"],
        metadata={
            "help": "Parallel text, one or more of: embedded:de, LANG=FILE (TSV, JSONL, Parquet, TMX; .gz too), "
            "LANG=FILE1,FILE2 (line-aligned), LANG=HUB_ID or LANG=HUB_ID:CONFIG.",
            "group": "Model and data",
        },
    )
    eval_data: list[str] = field(
        default_factory=lambda: ["embedded:de", "embedded:bn"],
        metadata={"help": "Held-out parallel text, written the same way.", "group": "Model and data"},
    )
    train_split: str = field(
        default="train", metadata={"help": "Split of embedded and Hub training data.", "group": "Model and data"}
    )
    eval_split: str = field(
        default="test", metadata={"help": "Split of embedded and Hub held-out data.", "group": "Model and data"}
    )
    target_lang: str = field(
        default="en", metadata={"help": "The pivot language, the target column.", "group": "Model and data"}
    )
    max_train_pairs: int | None = field(
        default=None, metadata={"help": "Use the first n pairs of each training source.", "group": "Model and data"}
    )
    max_eval_pairs: int | None = field(
        default=None, metadata={"help": "Use the first n pairs of each held-out source.", "group": "Model and data"}
    )
    on_empty: Literal["error", "drop"] = field(
        default="error",
        metadata={
            "help": "A pair with an empty side: error (names the row) or drop.",
            "group": "Model and data",
        },
    )

    def changed(self) -> dict[str, Any]:
        """The arguments that differ from their defaults."""
        from hf_xalign.config import non_default_fields

        return non_default_fields(self)


@dataclass
class TextArguments(ParallelText):
    """The encoder and the text of a run."""

    model_name_or_path: str = field(
        default="embedded",
        metadata={
            "help": "Encoder: a Hub id, a folder, or `embedded` (no network needed).",
            "group": "Model and data",
        },
    )
    model_revision: str = field(
        default="main", metadata={"help": "Branch, tag or commit of a Hub model.", "group": "Model and data"}
    )
    compare_with: str | None = field(
        default=None,
        metadata={
            "help": "Folder of another run on the same pairs, whose time this run's is set against.",
            "group": "Run",
        },
    )
    dry_run: bool = field(
        default=False,
        metadata={"help": "Show data, links, cache size and an estimate of the time; train nothing.", "group": "Run"},
    )


@dataclass
class DataArguments(TextArguments):
    """The encoder, the text and the word links of a run."""

    aligner: str = field(
        default="fast_align",
        metadata={
            "help": "fast_align, hmm, ibm1 to ibm4, eflomal, pharaoh:PATH, dictionary:PATH, or encoder (the encoder "
            "itself before training).",
            "group": "Word links",
        },
    )
    symmetrization: Literal["intersection", "union", "grow-diag", "grow-diag-final-and"] = field(
        default="intersection",
        metadata={
            "help": "How the two directions of the aligner are put together.",
            "group": "Word links",
        },
    )
    one_to_one: bool = field(
        default=True, metadata={"help": "A word with two links loses all its links.", "group": "Word links"}
    )
    drop_identical: bool = field(
        default=False, metadata={"help": "Drop links between identical words.", "group": "Word links"}
    )
    eval_links: str | None = field(
        default=None,
        metadata={
            "help": "The eval_links.jsonl of another run, to score on the same links; takes the place of eval_data.",
            "group": "Word links",
        },
    )


def resume_choice(args: Any) -> bool | str | None:
    """`args.resume_from_checkpoint`, where the words true and false are what they say."""
    resume = args.resume_from_checkpoint
    if isinstance(resume, str) and resume.lower() in ("true", "false"):
        return resume.lower() == "true"
    return resume


def adapter_entry(config: Any) -> dict[str, Any]:
    """The record's entry of an adapter: PEFT's name of its kind, and the languages that have a map of their own."""
    return {
        "peft_type": str(getattr(config.peft_type, "value", config.peft_type)),
        "languages": getattr(config, "languages", None),
        "pivot": getattr(config, "pivot", None),
    }


def run(
    main: Callable[[], None],
    *,
    when_interrupted: str = "resume_from_checkpoint=true goes on from the last complete checkpoint",
) -> None:
    """Run a recipe's `main`: bad input ends it with one line and status 2, a full disk with 1, Ctrl-C with 130.

    Args:
        main: the recipe, which imports torch itself, after the number of its threads is settled.
        when_interrupted: how to go on after Ctrl-C.
    """
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    rank = int(os.environ.get("RANK", "0"))
    logging.getLogger("hf_xalign").setLevel(logging.INFO if rank == 0 else logging.ERROR)
    # The base's missing pooler, and the like, are what the library takes care of: no report of them at every load.
    for name in ("transformers.modeling_utils", "transformers.distributed.tensor_parallel"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        main()
        _leave_processes()
    except InputError as error:
        if os.environ.get("HF_XALIGN_DEBUG"):  # by `hf-xalign --debug train`
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except NonFiniteLossError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        full = next(
            (cause for cause in _causes(error) if isinstance(cause, OSError) and cause.errno in DISK_FULL), None
        )
        if full is None:
            raise
        print(
            f"error: {full.filename or 'the disk'}: {full.strerror}: nothing half-written is used later; make room, "
            "or set $HF_XALIGN_CACHE, $HF_HOME or output_dir to a larger disk, and run again",
            file=sys.stderr,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        print(f"interrupted; {when_interrupted}", file=sys.stderr)
        sys.exit(130)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came of: Arrow fails on closing a file, and says nothing of the disk that was full."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _leave_processes() -> None:
    """Take leave of the other processes together: one that ends while another still talks to it may abort."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        # What still holds the group would free it while the interpreter ends, where that may wait for ever.
        gc.collect()
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def settle_cpu(device: str) -> None:
    """On a CPU: threads that sleep while they wait, and no denormal numbers.

    Spinning threads cost a factor of 2 to 6 on a busy machine; Adam's moments of rare embedding rows decay into
    denormals, which slow a small model's step several times.
    """
    import torch

    if device == "cpu":
        torch.set_flush_denormal(True)
        logger.info(
            "CPU run: threads: %d, OMP_WAIT_POLICY=%s, denormal numbers are flushed to zero",
            torch.get_num_threads(),
            os.environ.get("OMP_WAIT_POLICY"),
        )
