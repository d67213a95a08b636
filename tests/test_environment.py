"""Facts of the machine."""

import torch

from hf_xalign import environment


def test_bfloat16_is_used_where_a_product_is_faster_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "x86_64", "avx512_bf16": True})
    for share, faster in ((0.5, True), (0.9, False), (1.8, False)):
        monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path / str(share)))
        turns = iter([{"float32": 1.0, "bfloat16": share}])  # measured once, then read from the cache
        monkeypatch.setattr(environment, "_product_seconds", lambda turns=turns: next(turns))
        assert [environment.bfloat16_is_faster() for _ in range(2)] == [faster, faster]
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "x86_64", "avx512_bf16": False})
    assert not environment.bfloat16_is_faster()  # neither measured nor read


def test_both_types_are_timed():
    assert {name: seconds > 0 for name, seconds in environment._product_seconds().items()} == {
        "float32": True,
        "bfloat16": True,
    }
