"""The feature cache: what it holds and refuses, and its making cut short: killed, out of disk, wanted by two."""

import pickle

import numpy as np
import pytest
import torch
from datasets import Dataset
from support.adapters import adapt
from support.families import PASS
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.errors import InputError
from hf_xalign.modeling import features
from hf_xalign.modeling.features import cache_features

LINKED = {"source": "linked", "target": "linked"}
ALL = {"source": "all", "target": "all"}


def pairs(n=24):
    """Pairs of which every sentence occurs three times; one is English beside English, the last has other links."""
    links = make_links(n)
    row = {**links[0], "source_lang": "en", "source_words": ["no", "house"], "links": [[1, 2]]}
    return Dataset.from_list([*links, row, {**links[0], "links": [[3, 4], [1, 1]]}])


def many(n=60):
    """Pairs of distinct sentences of several lengths, so that there are batches enough to be cut short between."""
    words = ["the", "cat", "dog", "house", "open", "file", "da", "kat", "hund", "haus"]
    rng = np.random.default_rng(0)
    rows = []
    for k in range(n):
        source, target = ([words[i] for i in rng.integers(10, size=3 + k % 7)] for _ in range(2))
        rows.append({"source_words": source, "target_words": target, "source_lang": "de", "links": [[0, 1], [2, 0]]})
    return Dataset.from_list(rows)


def cache(folder, model=None, links=None, needed=LINKED, pooling="mean", layers=(2,), max_length=None, **settings):
    encoded = encode_pairs(links or pairs(), make_tokenizer(), max_length=max_length)
    start = cache_features(
        model or make_encoder(),
        encoded,
        needed=needed,
        layers=list(layers),
        pooling=pooling,
        pad_token_id=0,
        folder=folder,
        **settings,
    )
    return start.words, start.dataset


def counted(model):
    """The sentences of each forward pass of `model`, filled as it runs."""
    batches = []
    model.register_forward_pre_hook(lambda *given: batches.append(len(given[-1]["input_ids"])), with_kwargs=True)
    return batches


def test_every_word_of_every_row_by_a_slow_loop(subtests, tmp_path, monkeypatch):
    for block, pooling in ((16_384, "mean"), (3, "first"), (3, "last"), (3, "mean")):
        with subtests.test(f"{pooling} {block}"):
            folder = tmp_path / f"{pooling} {block}"
            monkeypatch.setattr(features, "_BLOCK", block)
            monkeypatch.setattr(features, "_ROWS", 5)
            vectors, indexed = cache(folder, needed=ALL, pooling=pooling, layers=(1, 2), batch_size=2)
            model = make_encoder().eval()
            pool = {"first": lambda x: x[0], "last": lambda x: x[-1], "mean": lambda x: x.mean(0)}[pooling]
            for row in indexed:
                for side in ("source", "target"):
                    ids = torch.tensor([row[f"{side}_ids"]])
                    with torch.no_grad():
                        states = model(input_ids=ids, output_hidden_states=True).hidden_states
                    spans = list(zip(row[f"{side}_starts"], row[f"{side}_ends"], strict=True))
                    spans += [(0, 1), (ids.shape[1] - 1, ids.shape[1])]
                    expected = torch.stack([torch.stack([pool(states[n][0, a:b]) for n in (1, 2)]) for a, b in spans])
                    got = vectors.read(np.array(row[f"{side}_rows"]))
                    assert_rounding(got, expected, PASS)


def test_bfloat16_rounds(tmp_path):
    exact, _ = cache(tmp_path / "exact")
    rounded, _ = cache(tmp_path / "rounded", dtype=torch.bfloat16)
    computed, _ = cache(tmp_path / "computed", autocast=torch.bfloat16)
    rows = np.arange(exact.shape[0])
    assert torch.equal(rounded.read(rows), exact.read(rows).bfloat16().float())
    assert not torch.equal(computed.read(rows), exact.read(rows))
    # Each of six products in a layer rounds its inputs to 8 bits.
    assert_rounding(computed.read(rows), exact.read(rows), operations=2 * 6, dtype=torch.bfloat16)


def test_what_is_cached_is_read_again_and_the_model_left_as_it_was(tmp_path, caplog):
    model = make_encoder(dropout=0.5).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with caplog.at_level("INFO"):
        vectors, _ = cache(tmp_path, model=model)
        said = next(m for m in caplog.messages if "of word vectors" in m)
        assert f"{vectors.shape[0]} words of 16 sentences" in said and "MB" in said
        assert model.training and all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
        batches = counted(model.eval())
        again, indexed = cache(tmp_path, model=model, links=pairs().shuffle(seed=1))
        assert caplog.messages[-1] == f"using the cached word vectors in {tmp_path}"
    assert again.path == vectors.path and not batches
    assert {len(row["source_rows"]) == len(row["source_starts"]) + 2 for row in indexed} == {True}
    # In training mode, too, without dropout.
    without, _ = cache(tmp_path / "b", model=make_encoder(dropout=0.0).eval())
    assert vectors.path.read_bytes() == without.path.read_bytes()
    # A worker opens the file itself.
    data, rows = pickle.dumps(vectors), np.array([0, 3])
    assert len(data) < 2000 and torch.equal(pickle.loads(data).read(rows), vectors.read(rows))


def test_anything_else_is_another_folder_of_the_users_cache():
    paths = [cache(None, links=pairs(4))[0].path]
    for change in (
        {"model": make_encoder(seed=1)},
        {"links": pairs(7)},
        {"needed": {"source": "linked"}},
        {"needed": ALL},
        {"linked_tokens": "all"},
        {"pooling": "last"},
        {"layers": (1,)},
        {"layers": (1, 2)},
        {"dtype": torch.bfloat16},
        {"autocast": torch.bfloat16},
    ):
        paths.append(cache(None, **{"links": pairs(4), **change})[0].path)
    assert len(set(paths)) == len(paths)


def test_no_room_is_said_before_anything_is_written(tmp_path, monkeypatch):
    model = make_encoder()
    batches = counted(model)
    size = cache(tmp_path / "size")[0].path.stat().st_size
    monkeypatch.setattr(features.shutil, "disk_usage", lambda path: type("", (), {"free": size - 1}))
    folder = tmp_path / "full"
    with pytest.raises(InputError, match=rf"{folder}: no space for 0\.0 MB.*XALIGN_CACHE.*bfloat16"):
        cache(folder, model=model)
    assert not batches and not [path for path in folder.iterdir() if path.name != "lock"]
    assert cache(folder, dtype=torch.bfloat16)[0].path.exists()


def compute(folder, model=None, batch_size=8):
    return cache(folder, model=model, links=many(), batch_size=batch_size)[0]


def test_what_is_not_whole_is_made_again(tmp_path):
    whole = compute(tmp_path / "whole")
    model = make_encoder()
    batches = counted(model)

    def stop(module, args):
        if len(batches) == 8:
            raise KeyboardInterrupt

    hook = model.train().register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        compute(tmp_path / "part", model)
    hook.remove()
    assert model.training and not list((tmp_path / "part").glob("*.bin"))
    vectors, content = compute(tmp_path / "part", model), whole.path.read_bytes()
    assert vectors.path.read_bytes() == content
    for name, damage in {"cache.json": "", "vectors.bin": "cut"}.items():
        (tmp_path / "part" / name).write_text(damage)
        assert compute(tmp_path / "part").path.read_bytes() == content


def test_another_encoder_or_text_in_the_same_folder_is_encoded_again(tmp_path):
    for change in ({}, {"model": make_encoder(seed=1)}, {"links": pairs(7)}, {"layers": (1,)}):
        given = {"links": pairs(4), **change}
        assert cache(tmp_path, **given)[0].path.read_bytes() == cache(None, **given)[0].path.read_bytes()


@pytest.mark.slow
def test_a_ray_cluster_changes_no_byte(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    model = make_encoder()
    cache(tmp_path / "here", model, needed=ALL, batch_size=2, layers=(1, 2))
    adapted = adapt(model, "linear")
    with adapted.disable_adapter():
        vectors, _ = cache(tmp_path / "ray", model, needed=ALL, batch_size=2, layers=(1, 2), ray="local")
    assert vectors.path.read_bytes() == (tmp_path / "here" / "vectors.bin").read_bytes()
    with pytest.raises(InputError, match="no Ray cluster answers at auto"):
        cache(tmp_path / "nowhere", ray="auto")
