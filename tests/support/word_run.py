"""Runs on the tiny encoder in a process of their own: under `accelerate launch`, or to be killed.

    python -m support.word_run OUTPUT_DIR '{"per_device_train_batch_size": 4, ...}' [--method fao|mao] [--each]
        [--resume] [--kill_after STEP] [--kill_in_save STEP]

It writes `history.json` (the log) and `final.safetensors` into OUTPUT_DIR. With `--each` the settings are those of
several runs, by name, and each goes into a folder of that name in OUTPUT_DIR.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path

from safetensors.torch import save_file

from hf_xalign.trainers import FAOConfig, FAOTrainer, MAOConfig, MAOTrainer
from support.launch import KillAfter, leave_processes, let_go
from support.tiny import make_encoder, make_links, make_tokenizer

METHODS = {"fao": (FAOConfig, FAOTrainer), "mao": (MAOConfig, MAOTrainer)}


class KilledInSave:
    """Dies when half of a checkpoint's files are written."""

    kill_step = 0

    def _save_rng_state(self, output_dir):
        if self.state.global_step == self.kill_step:
            os.kill(os.getpid(), signal.SIGKILL)
        super()._save_rng_state(output_dir)


def tiny_pairs(count):
    """Pairs in two languages, four of one and four of the other: a batch of four has one of them only."""
    return make_links(count).map(lambda row, k: {"source_lang": ["de", "nl"][k // 4 % 2]}, with_indices=True)


def run(folder, settings, given) -> None:
    config_class, trainer_class = METHODS[given.method]
    args = config_class(
        output_dir=str(folder),
        use_cpu=True,
        logging_steps=1,
        disable_tqdm=True,
        **{"learning_rate": 1e-3, **settings},
    )
    if given.kill_in_save:
        trainer_class = type("Killed", (KilledInSave, trainer_class), {"kill_step": given.kill_in_save})
    trainer = trainer_class(
        make_encoder(layers=4, dropout=given.model_dropout),
        args,
        train_dataset=tiny_pairs(given.pairs) if given.method == "mao" else make_links(given.pairs),
        processing_class=make_tokenizer(),
        callbacks=[KillAfter(given.kill_after)] if given.kill_after else None,
    )
    trainer.train(resume_from_checkpoint=given.resume or None)
    if trainer.is_world_process_zero():
        log = {"world_size": args.world_size, "history": trainer.state.log_history}
        (folder / "history.json").write_text(json.dumps(log))
        save_file({k: v.contiguous() for k, v in trainer.model.state_dict().items()}, folder / "final.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("settings", type=json.loads)
    parser.add_argument("--method", choices=METHODS, default="fao")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--model_dropout", type=float, default=0.0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--kill_after", type=int, default=0)
    parser.add_argument("--kill_in_save", type=int, default=0)
    given = parser.parse_args()
    runs = given.settings.items() if given.each else [("", given.settings)]
    for name, settings in runs:
        run(given.output_dir / name, settings, given)
        let_go()
    leave_processes()


if __name__ == "__main__":
    main()
