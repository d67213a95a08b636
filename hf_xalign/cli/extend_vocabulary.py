"""`hf-xalign extend-vocabulary`: add pieces for words that an encoder's tokenizer cannot write, or splits badly."""

from __future__ import annotations

import os
from dataclasses import dataclass
from operator import ne
from pathlib import Path

from hf_xalign.cache import check_output, work_folder
from hf_xalign.checks import setting
from hf_xalign.data.sources import PairText, check_files, check_models
from hf_xalign.errors import InputError

DESCRIPTION = """Add pieces for a language whose script the encoder's tokenizer writes as unknown tokens or bytes.

    hf-xalign extend-vocabulary builtin nqo=pairs.tsv --output runs/extended
    hf-xalign train fao --model_name_or_path runs/extended --train_data nqo=pairs.tsv --freeze_embeddings false ...
    hf-xalign extend-vocabulary builtin yo=pairs.tsv --split_over 3 --output runs/extended

The new pieces are learned from the source side of the pairs, and all of them occur in it. The same text gives the same
pieces. The embedding of a piece is computed from the pivot words that its words are linked to. Train the result with
--freeze_embeddings false. Text that the tokenizer could write before keeps its tokens. --split_over also adds pieces
for words that are split into many pieces; the last lines then count the sentences that change."""


@dataclass(kw_only=True)
class Arguments(PairText):
    """The encoder, the text, and the options of pieces and links."""

    model: str = setting(positional=True, metavar="MODEL", help="encoder: Hub id, folder or builtin")
    pairs: list[str] = setting(positional=True, metavar="PAIRS", help="parallel text, as in align-words")
    split: str = setting("train", help="split of built-in and Hub text")
    output: str = setting(metavar="FOLDER", help="folder to write")
    pieces: int = setting(4000, help="add at most N pieces")
    split_over: int | None = setting(None, least=1, help="also add pieces for words of more than N pieces, such as 3")
    aligner: str = setting("fast_align", help="aligner of hf-xalign align-words, or dictionary:PATH for a dictionary")
    max_pairs: int | None = setting(None, least=1, help="use the first N pairs of each text")


def run(args: Arguments) -> None:
    """Write the extended encoder and print the counts of pieces."""
    folder = Path(args.output)
    check_output(folder)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} exists and is not an empty folder. Give another folder to --output.")
    check_models([args.model])
    check_files(args.pairs)

    import torch

    from hf_xalign.data.load import load_parallel
    from hf_xalign.data.pretraining.vocabulary import add_pieces
    from hf_xalign.links import align_words
    from hf_xalign.modeling.checkpoint import carried_weights, save_encoder
    from hf_xalign.modeling.loading import load_encoder
    from hf_xalign.modeling.vocabulary import extend_embeddings

    text = load_parallel(args.pairs, split=args.split, max_pairs=args.max_pairs, **args.columns())
    model, old = load_encoder(args.model, torch.device("cpu"))
    tokenizer = add_pieces(old, text["source"][:], args.pieces, split_over=args.split_over)
    counts = extend_embeddings(model, len(old), tokenizer, align_words(text, args.aligner))
    prefix, carried = carried_weights(model)
    # Encoding has left a truncation in the tokenizer, unless its result came from the cache.
    tokenizer.backend_tokenizer.no_truncation()
    # Whole or not there: a folder without its tokenizer would be loaded.
    with work_folder(folder.with_name(f"{folder.name}.work")) as work:
        save_encoder(model, work, prefix, carried)
        tokenizer.save_pretrained(work)
        os.replace(work, folder)
    for name, count in counts.items():
        print(f"new pieces, {name}: {count:,}")
    before, after = (known(text["source"][:], add_special_tokens=False).input_ids for known in (old, tokenizer))
    sizes = [sum(map(len, ids)) / len(text) for ids in (before, after)]
    print(f"pieces of a sentence: {sizes[0]:.1f} before, {sizes[1]:.1f} after")
    before, after = (known(text["target"][:]).input_ids for known in (old, tokenizer))
    print(f"pivot sentences with other pieces than before: {sum(map(ne, before, after)):,} of {len(text):,}")
    print(f"saved: {folder}")
