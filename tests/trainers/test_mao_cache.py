"""MAO's cached word vectors: the steps are the same without them, and one pass of the encoder is enough."""

from functools import partial

import pytest
import torch
from support import mao
from support.launch import STEADY, outcome, same
from support.refusals import assert_refused
from support.runs import exact, train, two_languages
from support.tiny import make_encoder

SETTINGS = {"trainer": "mao", **STEADY, "init": "random", "max_steps": 2, "count": 8}
MODULES = {
    "linear": {},
    "maps": {"per_language": "others"},
    "transformer": {"preset": "transformer"},
    "no context": {"preset": "transformer", "context": False},
}
OBJECTIVES = {
    "l2": {},
    "l2 kept, links": {"regularizer_weight": 0.5, "regularized_words": "linked", "batch_of": "links"},
    "infonce, links": {"objective": "infonce", "batch_of": "links"},
    "infonce kept": {"objective": "infonce", "regularizer_weight": 0.5, "regularized_words": "all"},
}
# Rounded once to float32: the 16 numbers of both words of a difference, in each of two steps. InfoNCE's temperature
# of 0.1 magnifies.
ROUNDED = {"operations": 2 * 16 * 2, "magnified": 10, "dtype": torch.float32}


def assert_the_cache_changes_nothing(folder, **settings):
    with exact():
        cached = train(folder / "cached", **settings)
        computed = train(folder / "computed", **settings, feature_cache=False)
    assert "word_vectors" in cached.data_collator([cached.train_dataset[0]])
    assert "input_ids" in computed.data_collator([computed.train_dataset[0]])
    same(outcome(computed), outcome(cached), **ROUNDED)


@pytest.mark.numeric
def test_the_cache_changes_nothing(subtests, tmp_path):
    for (module, own), (objective, terms) in zip(MODULES.items(), OBJECTIVES.items(), strict=True):
        with subtests.test(f"{module}, {objective}"):
            assert_the_cache_changes_nothing(tmp_path / module, **SETTINGS, **own, **terms)


def test_the_encoder_runs_once_over_the_corpus(tmp_path):
    """Modules and seeds share a cache: the module is no part of what the vectors are of."""

    def forwards(name, **settings):
        """Count the encoder's passes in caching and one step."""
        encoder, calls = make_encoder(), []
        encoder.register_forward_hook(lambda *_: calls.append(1))
        torch.manual_seed(len(name))
        mao.make(tmp_path / name, encoder, data=two_languages(24), max_steps=1, **settings).train()
        return len(calls)

    for name, module in MODULES.items():
        # Sixteen distinct sentences, eight at a time. Without context, the words alone are needed, as for the map.
        shared = name == "no context"
        folder = str(tmp_path / ("linear cache" if shared else f"{name} cache"))
        assert forwards(name, **module, cache_dir=folder) == (0 if shared else 2), name
        assert forwards(f"{name} again", **module, cache_dir=folder) == 0, name


def test_another_cache_is_refused(tmp_path):
    def cached(**settings):
        settings = {"data": two_languages(8), "cache_dir": str(tmp_path / "cache"), **settings}
        return mao.make(tmp_path / "run", **settings)

    cached()
    data = two_languages(8)
    table = {
        "another encoder": {"model": make_encoder(seed=1)},
        "another text": {"data": two_languages(6)},
        "other word links": {"data": data.map(lambda row: {"links": row["links"][:1]})},
        "pooling is mean there and last here": {"pooling": "last"},
        "dtype is float32 there": {"cache_dtype": "bfloat16"},
        "needed": {"preset": "transformer"},
    }
    assert_refused({message: (partial(cached, **settings), message) for message, settings in table.items()})
