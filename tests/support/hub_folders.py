"""What the library writes, a folder of each kind, and the lines by which clients push and load it."""

import shutil

from peft import LoraConfig, get_peft_model
from transformers import AutoModel, AutoModelForSequenceClassification, BertForSequenceClassification

from hf_xalign.modeling import with_alignment
from hf_xalign.modeling.sentence_export import save_sentence_transformer
from hf_xalign.record import write_record
from support.adapters import TEXT, adapt
from support.card import make_record
from support.families import CONFIGS, save_base
from support.maps import make_map, make_rotated
from support.tagger import INPUTS, make_tagger
from support.tiny import make_tokenizer

# What lies about in folders of runs, and must stay there.
STRAY = (
    "training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin", "adapter_model.bin",
    "model.pkl", "checkpoint-3/model.safetensors", "checkpoint-3/optimizer.pt", "checkpoint-3/curve.png",
    "alignment_head.safetensors", "eval_links.jsonl", ".env", ".cache/huggingface/token.json", "notes.txt", "run.py",
)  # fmt: skip
PUSH = "found = hub.push(folder, repo, **options).oid"
LOAD = (
    "model = hub.load(repo, revision=revision)\n"
    "given = {name: torch.tensor(value) for name, value in inputs.items()}\n"
    "with torch.no_grad():\n"
    "    output = model(**given, **options)\n"
    "found = [type(model).__name__, model.training, output[0].tolist()]\n"
)


def plain(tensors):
    return {name: tensor.tolist() for name, tensor in tensors.items()}


def keep(folder, **changes):
    write_record(folder, {**make_record(), "base_model": {"name": "me/base", "hub_id": "me/base"}, **changes})


def write_folders(root):
    save_base("bert", root / "base")
    base, tokenizer = AutoModel.from_pretrained(root / "base", add_pooling_layer=False), make_tokenizer()
    keep(root / "base")
    for kind, model in {
        "adapter": adapt(AutoModel.from_pretrained(root / "base", add_pooling_layer=False), "languages", "random"),
        "lora": get_peft_model(
            AutoModel.from_pretrained(root / "base", add_pooling_layer=False),
            LoraConfig(target_modules=["query"], init_lora_weights=False),
        ),
        "mapped": make_rotated(),
        "tagger": make_tagger(),
        "task": BertForSequenceClassification(CONFIGS["bert"]()).eval(),
    }.items():
        model.save_pretrained(root / kind)
        tokenizer.save_pretrained(root / kind)
    shutil.copytree(root / "lora", root / "lora-run")
    keep(root / "lora-run", adapter={"peft_type": "LORA", "languages": None, "pivot": None})
    keep(root / "adapter", adapter={"peft_type": "XALIGN", "languages": ["de", "to"], "pivot": "en"})
    one = adapt(AutoModel.from_pretrained(root / "base", add_pooling_layer=False), "pfeiffer transformer", "random")
    task = AutoModelForSequenceClassification.from_pretrained(root / "base", num_labels=3)
    with_alignment(task, one).save_pretrained(root / "one")
    save_sentence_transformer(base, tokenizer, root / "sentences")
    (root / "sentences" / "README.md").write_text("---\nlicense: mit\n---\n# Sentences\n")
    make_map(source_lang="de", target_lang="en").save(root / "maps" / "maps" / "de-en.safetensors")
    tokenizer.save_pretrained(root / "maps")
    files = {"files": {"de": "maps/de-en.safetensors"}, "dictionary": {}}
    keep(root / "maps", method="mapping", preset="procrustes", maps=files, settings={})
    for folder in root.iterdir():
        for name in STRAY:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"\x80\x04pickled")


# Inputs and options of the forward of each kind.
KINDS = {
    "base": (TEXT, {}),
    "adapter": (TEXT, {"language": "to"}),
    "lora": (TEXT, {}),  # with PEFT's own card
    "lora-run": (TEXT, {}),
    "mapped": (TEXT, {"language": "to"}),
    "tagger": (INPUTS, {}),
    "task": (TEXT, {}),
    "one": (TEXT, {}),
    "sentences": (TEXT, {}),
}


def options_of(kind):
    """Adapters were saved beside a base that only this machine has."""
    return {"base_model": "me/base"} if kind in ("adapter", "lora", "lora-run") else {}
