"""Embeddings of new pieces come from the pivot words that their words are linked to."""

import torch
from datasets import Dataset
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_tokenizer

from hf_xalign.data.pretraining.vocabulary import add_pieces
from hf_xalign.modeling.vocabulary import extend_embeddings

WORDS = [
    (["নতুন", "ফাইল"], ["the", "file"], [[1, 1], [0, 0]]),
    (["ফাইল", "খোলো"], ["open", "file", "নতুন"], [[0, 1], [1, 0], [1, 2]]),
    (["ঘর"], ["house"], []),
]


def linked():
    source, target, links = map(list, zip(*WORDS))
    columns = {"source_words": source, "target_words": target, "links": links}
    return Dataset.from_dict({**columns, "source_lang": ["bn"] * len(WORDS), "target_lang": ["en"] * len(WORDS)})


def test_embeddings_against_a_loop_and_other_text_as_before():
    model, old = make_encoder(), make_tokenizer()
    new = add_pieces(old, [" ".join(words) for words, _, _ in WORDS] * 3, 60)
    table = model.get_input_embeddings().weight.detach().clone()
    inputs = old(["the dog", "open the house"], padding=True, return_tensors="pt")
    before = model(**inputs).last_hidden_state
    counts = extend_embeddings(model, len(old), new, linked())
    # Rows of no token, as in the built-in encoder, are used first.
    assert len(old) < model.config.vocab_size == max(160, len(new)) == len(model.get_input_embeddings().weight)
    assert torch.equal(model(**inputs).last_hidden_state, before)

    sums, numbers = {}, {}
    for source, target, links in WORDS:
        for i, j in links:
            pivots = old(target[j], add_special_tokens=False).input_ids
            for piece in new(source[i], add_special_tokens=False).input_ids:
                for pivot in pivots:
                    if pivot != old.unk_token_id:  # a word of the source language among the pivot's
                        row = table[pivot].double() / len(pivots)
                        sums[piece] = sums.get(piece, 0) + row
                        numbers[piece] = numbers.get(piece, 0) + 1 / len(pivots)
    wanted = {piece: sums[piece] / numbers[piece] for piece in sums}
    others = set(range(len(old), len(new))) - set(wanted)
    rest = torch.stack([*wanted.values()]).mean(0)
    assert counts == {"linked": len(wanted), "not linked": len(others)} and others
    own = model.get_input_embeddings().weight
    for piece in range(len(old), len(new)):
        assert_rounding(own[piece], wanted.get(piece, rest), operations=2, scale=1.0, dtype=torch.float32)
