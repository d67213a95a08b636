"""`hf-xalign export`: write an aligned encoder for other libraries."""

from __future__ import annotations

import argparse
from pathlib import Path

from hf_xalign.cache import check_output, read_json
from hf_xalign.data.sources import check_models
from hf_xalign.errors import InputError

DESCRIPTION = """Write an encoder for sentence-transformers, or with --onnx for ONNX Runtime.

    hf-xalign export runs/fao_embedded exported
    hf-xalign export runs/mao_transformer_embedded exported --onnx --int8

The folder loads as SentenceTransformer("exported"), with backend="onnx" where it is ONNX. An ONNX graph has MAO's
modules and maps in it. Without --onnx they are refused, because that package loads an encoder alone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run, the folder and the options of the format."""
    parser.add_argument("model", metavar="RUN", help="folder of a run, Hub id or builtin")
    parser.add_argument("output", metavar="OUT", help="folder to write")
    parser.add_argument("--pooling", choices=["mean", "cls", "last"], default="mean", help="sentence vector")
    parser.add_argument("--onnx", action="store_true", help="write ONNX (extra onnx)")
    parser.add_argument("--int8", action="store_true", help="with --onnx: also write a model in 8 bits")
    parser.add_argument("--allow_nonfinite", action="store_true", help="write weights that are NaN or infinite too")
    parser.add_argument("--lang", metavar="LANG", help="with --onnx: language of a model with one map for each")


def run(args: argparse.Namespace) -> None:
    """Write the folder."""
    if not args.onnx and (args.int8 or args.lang):
        raise InputError("--int8 and --lang are for --onnx: add it")
    check_models([args.model], finite=not args.allow_nonfinite)
    check_output(args.output)
    modules = Path(args.model, "adapter_config.json")
    alone = modules.exists() and not Path(args.model, "config.json").exists() and not args.onnx
    if alone and read_json(modules)["peft_type"] == "XALIGN":
        raise InputError(f"{args.model}: sentence-transformers loads an encoder alone. Add --onnx for its modules.")

    from peft import PeftModel

    from hf_xalign.modeling import merge
    from hf_xalign.modeling.loading import encoder_of, load, load_tokenizer
    from hf_xalign.modeling.onnx_export import export_onnx
    from hf_xalign.modeling.sentence_export import save_sentence_transformer

    tokenizer, model = load_tokenizer(args.model), encoder_of(load(args.model))
    options = {"pooling": args.pooling, "allow_nonfinite": args.allow_nonfinite}
    if args.onnx:
        folder = export_onnx(model, tokenizer, args.output, lang=args.lang, int8=args.int8, **options)
    else:
        encoder = merge(model) if isinstance(model, PeftModel) else model
        folder = save_sentence_transformer(encoder, tokenizer, args.output, **options)
    print(f"saved: {folder}")
