import datasets
import evaluate
import pytest
import transformers.utils.hub
from huggingface_hub import constants, hf_api
from huggingface_hub.utils import close_session
from support.loopback import TOKEN, LoopbackHub


@pytest.fixture
def own_hub(tmp_path, monkeypatch):
    """A Hub that this process, which is offline otherwise, pushes to and loads from, with a cache of its own."""
    with LoopbackHub() as running:
        for name, value in {"HF_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}.items():
            monkeypatch.setenv(name, value)
        home, resolved = tmp_path / "home", "/resolve/{revision}/"
        for config, values in {
            constants: {
                "ENDPOINT": running.url,
                "HUGGINGFACE_CO_URL_TEMPLATE": running.url + "/{repo_id}" + resolved + "{filename}",
                "HF_HUB_CACHE": str(home / "hub"),
                "HF_HUB_OFFLINE": False,
                "HF_HUB_DISABLE_XET": True,
                "HF_HUB_DISABLE_TELEMETRY": True,
            },
            hf_api.api: {"endpoint": running.url},
            transformers.utils.hub: {"_hf_api": None},
            datasets.config: {
                "HF_ENDPOINT": running.url,
                "HF_HUB_OFFLINE": False,
                "HF_DATASETS_CACHE": str(home / "datasets"),
            },
            evaluate.config: {
                "HUB_EVALUATE_URL": running.url + "/spaces/{path}" + resolved + "{name}",
                "HF_EVALUATE_CACHE": str(home / "evaluate"),
            },
        }.items():
            for name, value in values.items():
                monkeypatch.setattr(config, name, value)
        close_session()
        yield running
        close_session()
        assert running.unknown == []
