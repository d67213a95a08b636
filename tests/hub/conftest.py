"""Loopback Hubs: one that this process talks to, and one with two client processes."""

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session
from support.hub_client import HubClient
from support.loopback_hub import TOKEN, LoopbackHub

IMPORTS = (
    "import huggingface_hub, json, torch, hf_xalign\nfrom hf_xalign import hub\n"
    "from hf_xalign.metrics.space import push_metric\n"
)


@pytest.fixture
def own_hub(tmp_path, monkeypatch):
    """A Hub that this process, which is offline otherwise, pushes to and loads from."""
    with LoopbackHub() as running:
        for name, value in running.environment(tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        for name, value in {
            "ENDPOINT": running.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": running.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(tmp_path / "home" / "hub"),
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_DISABLE_TELEMETRY": True,
        }.items():
            monkeypatch.setattr(constants, name, value)
        close_session()
        yield running
        close_session()
        assert running.unknown == []


@pytest.fixture(scope="session")
def hub():
    with LoopbackHub() as running:
        yield running
        assert running.unknown == []


@pytest.fixture(scope="session")
def clients(hub, tmp_path_factory):
    """One process that pushes, and another that was never told where the models were."""
    folder = tmp_path_factory.mktemp("clients")
    logs = [folder / f"{name}.log" for name in ("here", "elsewhere")]
    here, there = (HubClient(hub.environment(log.with_suffix("")), log) for log in logs)
    with here, there:
        here.start(IMPORTS)
        there.start(IMPORTS)
        here.result(), there.result()
        yield here, there
    assert not any(TOKEN in log.read_text() for log in logs)


@pytest.fixture(scope="session")
def here(clients):
    return clients[0]


@pytest.fixture(scope="session")
def there(clients):
    return clients[1]
