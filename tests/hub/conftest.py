"""A Hub on loopback, and two processes with the real client: one pushes, the other has never seen the folders."""

from __future__ import annotations

import pytest
from support.hub_client import HubClient
from support.loopback_hub import TOKEN, LoopbackHub

IMPORTS = "import json, torch, hf_xalign\nfrom hf_xalign import hub\n"


@pytest.fixture(scope="session")
def hub():
    with LoopbackHub() as running:
        yield running
        assert running.unknown == []


@pytest.fixture(scope="session")
def clients(hub, tmp_path_factory):
    """One process that pushes, and another that was never told where the models were."""
    folder = tmp_path_factory.mktemp("clients")
    environments = [hub.environment(folder / name) for name in ("here", "elsewhere")]
    with (
        HubClient(environments[0], folder / "here.log") as here,
        HubClient(environments[1], folder / "elsewhere.log") as there,
    ):
        here.start(IMPORTS)
        there.start(IMPORTS)
        here.result(), there.result()
        yield here, there
    assert TOKEN not in (folder / "here.log").read_text() + (folder / "elsewhere.log").read_text()


@pytest.fixture(scope="session")
def here(clients):
    return clients[0]


@pytest.fixture(scope="session")
def there(clients):
    return clients[1]
