"""A dataset on a Hub that there is none of, and how it was asked for."""

from __future__ import annotations

import datasets

COMMIT = "5fe4ae588820dffa40f7b462d087cb21c3be2010"


class Builder:
    """In the place of a builder of `datasets`: its dataset is there already, or building it raises."""

    hash = COMMIT

    def __init__(self, found):
        self.found, self.prepared, self.calls = found, False, []

    def download_and_prepare(self):
        if isinstance(self.found, Exception):
            raise self.found
        self.prepared = True

    def as_dataset(self, split):
        assert self.prepared
        self.calls[-1] += (split,)
        return self.found


def put_on_hub(monkeypatch, found):
    """The calls that will be made: (name, configuration, revision, split) each."""
    builder = Builder(found)

    def load_dataset_builder(name, config, *, revision):
        builder.calls.append((name, config, revision))
        return builder

    monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
    return builder.calls
