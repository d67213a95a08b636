r"""FAO: fine-tune an encoder on word links until its languages meet (Cao et al. 2020).

The embedded encoder and text, about ten minutes on two CPU cores, no network:

    accelerate launch recipes/fao.py --config recipes/configs/fao_embedded.yaml

Your own encoder and text (any field of `--help` goes on the command line or into the YAML file):

    accelerate launch recipes/fao.py --config recipes/configs/fao_embedded.yaml \
        --model_name_or_path FacebookAI/xlm-roberta-base --train_data bn=my_pairs.jsonl --eval_data bn=my_test.jsonl \
        --output_dir runs/my_bengali

On a GPU, start from fao_embedded_gpu.yaml. It ends with what was saved where and the scores before and after; the
folder loads with `AutoModel.from_pretrained` and holds `results.json` (everything about the run), `eval_links.jsonl`
(the links it was scored on) and a model card.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("WANDB_PROJECT", "hf_xalign")

from hf_xalign.recipes.common import DataArguments, run, settle_cpu


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.config import parse
    from hf_xalign.trainers.checkpoints import check_output_dir, resolve_resume
    from hf_xalign.trainers.fao_config import FAOConfig

    data, args = parse((DataArguments, FAOConfig), argv, description=__doc__)
    resume = args.resume_from_checkpoint
    if isinstance(resume, str) and resume.lower() in ("true", "false"):
        resume = resume.lower() == "true"
    if not data.dry_run:
        check_output_dir(args.output_dir, resume=resume, overwrite=args.overwrite_output_dir)
    settle_cpu(args.device.type)

    from transformers import set_seed

    from hf_xalign.evaluation.drift import vector_drift
    from hf_xalign.evaluation.frozen_links import write_links
    from hf_xalign.recipes.material import EVAL_LINKS, load_material
    from hf_xalign.recipes.report import announce, estimate, finish
    from hf_xalign.record import phase, start_record
    from hf_xalign.trainers import FAOTrainer

    set_seed(args.seed)
    record = start_record(
        method="fao",
        preset=args.preset,
        seed=args.seed,
        base_model=data.model_name_or_path,
        languages=[],
        pivot=data.target_lang,
        settings={**data.changed(), **args.changed()},
        objective=args.formula(),
        paper=FAOTrainer._paper,
    )
    with phase(record, "loading and linking"):
        material = load_material(data, args, resume=resolve_resume(resume, args.output_dir))
    record["languages"]["others"] = material.languages
    record["data"] = material.sources
    record["links"] = material.link_counts
    announce(record, material)

    if data.dry_run:
        estimate(FAOTrainer, material, args)
        return

    folder = Path(args.output_dir)
    if args.should_save:
        folder.mkdir(parents=True, exist_ok=True)
        write_links(material.evaluation, folder / EVAL_LINKS)
    with phase(record, "scoring"), args.main_process_first(desc="scoring"):
        if args.should_save:
            record["scores"]["before"] = material.score(args, "before")
            pivot_before = material.pivot_vectors(args)
    with phase(record, "preparing"):
        trainer = material.trainer(FAOTrainer, args)
    with phase(record, "training"):
        trainer.train(resume_from_checkpoint=resume)
    trainer.save_model()
    if args.should_save:
        with phase(record, "scoring"):
            record["scores"]["after"] = material.score(args, "after")
            record["drift"] = vector_drift(pivot_before, material.pivot_vectors(args))
        finish(record, folder)


if __name__ == "__main__":
    run(main)
