"""Runs of W&B, offline, and of Trackio: kept in a temporary folder, and read back."""

import contextlib
import json
import struct

import pytest


@contextlib.contextmanager
def offline(folder, **environment):
    import wandb

    with pytest.MonkeyPatch.context() as patch:
        for name in ("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
            patch.setenv(name, str(folder))
        for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", **environment}.items():
            patch.setenv(name, value)
        wandb.teardown()
        yield
    wandb.teardown()


def log_records(path):
    """The records of a `.wandb` file: LevelDB's log format, after a header of seven bytes.

    Blocks of 32 KiB hold chunks of (checksum, length, kind) and data; a chunk is a whole record (kind 1) or its first,
    middle or last part (2, 3, 4), and a block's last bytes stay empty where no head of a chunk fits.
    """
    from wandb.proto import wandb_internal_pb2

    data = path.read_bytes()
    place, part = 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        part += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(part)
            part = b""


class Run:
    """A run as its file has it: `config`, `summary`, `history` (a dict a row), `artifacts`; `folder`."""

    def __init__(self, path):
        self.folder = path.parent
        self.config, self.summary, self.history, self.artifacts, self.hosts = {}, {}, [], [], set()
        for record in log_records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                self.config.update(_items(record.run.config.update))
                self.hosts.add(record.run.host)
            elif kind == "config":
                self.config.update(_items(record.config.update))
            elif kind == "summary":
                self.summary.update(_items(record.summary.update))
            elif kind == "history":
                self.history.append(_items(record.history.item))
            elif kind == "artifact":
                self.artifacts.append(record.artifact)

    def column(self, key):
        return [(row["train/global_step"], row[key]) for row in self.history if key in row]


def read_runs(folder):
    return [Run(path) for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"))]


def _items(items):
    found = {}
    for item in items:
        *parents, last = item.nested_key or [item.key]
        place = found
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = json.loads(item.value_json)
    return found
