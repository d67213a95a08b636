"""Memory that is given back to the system."""

import ctypes
import sys

import psutil
import pytest

from hf_xalign.environment import give_back_memory


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another allocator than glibc's"
)
def test_freed_blocks_between_used_ones_are_given_back():
    def resident() -> int:
        return psutil.Process().memory_info().rss

    size = 64 * 1024  # below the size from which glibc takes a mapping of its own
    blocks = [bytearray(size) for _ in range(2000)]
    kept = blocks[1::2]
    del blocks
    before = resident()
    give_back_memory()
    assert before - resident() > 0.8 * len(kept) * size
