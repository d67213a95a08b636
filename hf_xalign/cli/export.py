"""`hf-xalign export`: write an aligned encoder for other libraries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hf_xalign.cache import check_output
from hf_xalign.checks import needs, setting
from hf_xalign.data.sources import check_models

DESCRIPTION = """Write an encoder for sentence-transformers, or with --onnx for ONNX Runtime.

    hf-xalign export runs/fao_builtin exported
    hf-xalign export runs/mao_transformer_builtin exported --onnx --int8

Load the folder by SentenceTransformer("exported"), or SentenceTransformer("exported", backend="onnx") for ONNX. An
ONNX graph contains MAO's modules and maps. Without --onnx they cannot be exported, because sentence-transformers loads
only the encoder."""


@dataclass(kw_only=True)
class Arguments:
    """The run, the folder and the options of the format."""

    model: str = setting(positional=True, metavar="RUN", help="folder of a run, Hub id or builtin")
    output: str = setting(positional=True, metavar="OUT", help="folder to write")
    pooling: Literal["mean", "cls", "last"] = setting("mean", help="sentence vector")
    onnx: bool = setting(False, flag=True, help="write ONNX (extra onnx)")
    int8: bool = setting(False, flag=True, help="with --onnx: also write a model in 8 bits", rules=[needs(onnx=True)])
    lang: str | None = setting(
        None, metavar="LANG", help="with --onnx: language of a model with a map per language", rules=[needs(onnx=True)]
    )


def run(args: Arguments) -> None:
    """Write the folder."""
    check_models([args.model])
    check_output(args.output)

    from peft import PeftModel

    from hf_xalign.modeling import XAlignConfig, merge
    from hf_xalign.modeling.export import export_onnx, save_sentence_transformer
    from hf_xalign.modeling.loading import encoder_of, load, load_tokenizer

    tokenizer, model = load_tokenizer(args.model), encoder_of(load(args.model))
    if args.onnx:
        folder = export_onnx(model, tokenizer, args.output, pooling=args.pooling, lang=args.lang, int8=args.int8)
    else:
        mergeable = isinstance(model, PeftModel) and not isinstance(model.active_peft_config, XAlignConfig)
        encoder = merge(model) if mergeable else model
        folder = save_sentence_transformer(encoder, tokenizer, args.output, pooling=args.pooling)
    print(f"saved: {folder}")
