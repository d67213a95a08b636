import pytest
from support.loopback import serve_hub


@pytest.fixture
def own_hub(tmp_path, monkeypatch):
    with serve_hub(tmp_path, monkeypatch) as running:
        yield running
