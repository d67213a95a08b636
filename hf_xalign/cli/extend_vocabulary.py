"""`hf-xalign extend-vocabulary`: give an encoder pieces for a script that its tokenizer cannot write."""

from __future__ import annotations

import argparse
from pathlib import Path

from hf_xalign.cache import check_output
from hf_xalign.cli import pairs
from hf_xalign.data.sources import check_files, check_models
from hf_xalign.errors import InputError

DESCRIPTION = """Give an encoder pieces for a language whose script its tokenizer writes as unknown tokens or bytes.

    hf-xalign extend-vocabulary embedded bn=pairs.tsv --output runs/extended
    hf-xalign train fao --model_name_or_path runs/extended --train_data bn=pairs.tsv --freeze_embeddings false ...

New pieces are trained on the source side of the pairs. Their embeddings start as those of the pivot words that their
words are linked to. Train the result with --freeze_embeddings false. Text that the tokenizer could write before keeps
its tokens."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the encoder, the text, and the options of pieces and links."""
    parser.add_argument("model", metavar="MODEL", help="encoder: Hub id, folder or embedded")
    parser.add_argument("pairs", nargs="+", metavar="PAIRS", help="parallel text, as in hf-xalign align-words")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="folder to write")
    parser.add_argument("--pieces", type=int, default=4000, metavar="N", help="most pieces to add")
    parser.add_argument(
        "--aligner", default="fast_align", help="aligner of hf-xalign align-words; a dictionary is dictionary:PATH"
    )
    parser.add_argument("--max_pairs", type=int, metavar="N", help="use the first N pairs of each text")
    pairs.add_options(parser, "train")


def run(args: argparse.Namespace) -> None:
    """Write the extended encoder and print the counts of pieces."""
    folder = Path(args.output)
    check_output(folder)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} exists and is not an empty folder: name another for --output")
    check_models([args.model])
    check_files(args.pairs)

    import torch

    from hf_xalign.data.parallel import load_sources
    from hf_xalign.data.pretraining.vocabulary import add_pieces
    from hf_xalign.links import align_words
    from hf_xalign.modeling.checkpoint import carried_weights, save_encoder
    from hf_xalign.modeling.loading import load_encoder
    from hf_xalign.modeling.vocabulary import extend_embeddings

    text = load_sources(args.pairs, split=args.split, max_pairs=args.max_pairs, **pairs.columns(args))
    model, old = load_encoder(args.model, torch.device("cpu"))
    tokenizer = add_pieces(old, text["source"], args.pieces)
    prefix, carried = carried_weights(model)
    tokens = model.config.vocab_size
    counts = extend_embeddings(model, len(old), tokenizer, align_words(text, args.aligner))
    # The language model's head is of the old vocabulary.
    save_encoder(model, folder, prefix, {name: own for name, own in carried.items() if tokens not in own.shape})
    tokenizer.save_pretrained(folder)
    for name, count in counts.items():
        print(f"new pieces, {name}: {count:,}")
    print(f"saved: {folder}")
