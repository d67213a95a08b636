"""A dataset on a Hub that there is none of, and how it was asked for."""

from types import SimpleNamespace

import datasets

COMMIT = "5fe4ae588820dffa40f7b462d087cb21c3be2010"


def put_on_hub(monkeypatch, found):
    """The calls that will be made: (name, configuration, revision, split) each; an exception is raised instead."""
    calls = []

    def load_dataset_builder(name, config, *, revision, data_dir=None):
        def download_and_prepare():
            if isinstance(found, Exception):
                raise found
            calls.append((name, data_dir or config, revision))

        def as_dataset(split):
            calls[-1] += (split,)  # it was prepared
            return found

        return SimpleNamespace(hash=COMMIT, download_and_prepare=download_and_prepare, as_dataset=as_dataset)

    monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
    return calls
