"""Measure the learning rate that an adapter needs, as a multiple of the rate that the preset has for all weights.

LoRA of rank 8 is trained by FAO's `joint` on the built-in encoder and text, once for each factor, and all weights
once as a reference. All runs have the same batches. Prints word retrieval before and after.

    python benchmarks/adapter_rate.py --steps 60 --times 1 3 10 30 100
"""

from __future__ import annotations

import argparse
import tempfile

from peft import LoraConfig

from hf_xalign import load_parallel
from hf_xalign.trainers import FAOConfig, FAOTrainer


class Plain(FAOTrainer):
    """FAO that takes an adapter's learning rate as it is given."""

    adapter_rate = 1.0


def main() -> None:
    """Train each adapter, and print its scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--times", type=float, nargs="+", default=[1, 3, 10, 30, 100])
    parser.add_argument("--language", default="bn")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    text = f"builtin:{options.language}"
    train, held_out = load_parallel(text), load_parallel(text, split="test")
    print(f"{options.steps} steps of 16 pairs, {options.language}, seed {options.seed}")
    for times in [None, *options.times]:
        with tempfile.TemporaryDirectory() as folder:
            args = FAOConfig(
                freeze_embeddings=True,
                per_device_train_batch_size=16,
                max_steps=options.steps,
                max_grad_norm=1.0,
                learning_rate=1e-4 * (times or 1),
                seed=options.seed,
                use_cpu=True,
                save_strategy="no",
                record=False,
                report_to="none",
                disable_tqdm=True,
                output_dir=folder,
            )
            adapter = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"])
            trainer = Plain(
                "builtin",
                args,
                train_dataset=train,
                eval_dataset=held_out,
                peft_config=None if times is None else adapter,
            )
            before = trainer.evaluate()["eval_retrieval"]
            trainer.train()
            after = trainer.evaluate()["eval_retrieval"]
        name = "all weights" if times is None else f"LoRA, {times:g} times the rate"
        print(f"{name}: {100 * before:.1f} -> {100 * after:.1f}", flush=True)


if __name__ == "__main__":
    main()
