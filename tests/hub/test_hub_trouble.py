"""Pushes that fail halfway: taken up again, or the repository is as it was."""

from __future__ import annotations

import itertools

import pytest
from support.hub_client import ClientError
from support.hub_folders import PUSH
from support.loopback_hub import DROP, LOST
from support.maps import make_map
from support.tiny import make_encoder

pytestmark = pytest.mark.slow
_SEEDS = itertools.count(100)


@pytest.fixture
def encoder(tmp_path):
    """A folder with two files of weights, as no other push has sent them."""
    make_encoder(seed=next(_SEEDS)).save_pretrained(tmp_path / "encoder")
    make_map(next(_SEEDS)).save(tmp_path / "encoder" / "maps" / "x.safetensors")
    return tmp_path / "encoder"


def arrived(hub):
    return len([one for one in hub.asked("PUT", "/lfs/") if one.status == 200])


def test_an_upload_that_breaks_off_is_taken_up_again(hub, here, encoder):
    before = arrived(hub)
    for method, path, kind in (
        ("PUT", "/lfs/", DROP),
        ("PUT", "/lfs/", 503),
        ("POST", "/preupload/", 429),
        ("POST", "lfs-verify", 500),
    ):
        hub.fail(method, path, kind)
    here.run(PUSH, folder=str(encoder), repo="me/broken", options={})
    assert not hub.faults
    assert hub.files("me/broken")["model.safetensors"] == (encoder / "model.safetensors").read_bytes()
    assert hub.history("me/broken") == ["Upload model"] and arrived(hub) == before + 2


@pytest.mark.parametrize(
    ("method", "path", "kind"), [("PUT", "/lfs/", 403), ("POST", "/commit/", 500), ("POST", "/commit/", DROP)]
)
def test_a_failure_leaves_the_repository_as_it_was(hub, here, encoder, method, path, kind):
    repo = f"me/failed-{path.strip('/')}-{kind}"
    here.run(PUSH, folder=str(encoder), repo=repo, options={"message": "first"})
    old = hub.files(repo)
    make_encoder(seed=next(_SEEDS)).save_pretrained(encoder)
    (encoder / "maps" / "x.safetensors").unlink()
    make_map(next(_SEEDS)).save(encoder / "maps" / "y.safetensors")
    hub.fail(method, path, kind)
    before = arrived(hub)
    with pytest.raises(ClientError):
        here.run(PUSH, folder=str(encoder), repo=repo, options={})
    assert hub.files(repo) == old and hub.history(repo) == ["first"]

    here.run(PUSH, folder=str(encoder), repo=repo, options={"message": "second"})
    assert arrived(hub) - before == 2  # in both pushes together: what had arrived was not sent again
    assert hub.history(repo) == ["first", "second"]
    assert set(hub.files(repo)) == {"config.json", "model.safetensors", "maps/y.safetensors"}


def test_a_commit_whose_answer_is_lost_is_not_made_twice(hub, here, encoder):
    hub.fail("POST", "/commit/", LOST)
    with pytest.raises(ClientError, match="RemoteProtocolError"):
        here.run(PUSH, folder=str(encoder), repo="me/lost", options={})
    here.run(PUSH, folder=str(encoder), repo="me/lost", options={})
    assert hub.history("me/lost") == ["Upload model"]
