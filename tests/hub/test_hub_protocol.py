"""The Hub on loopback is one to `huggingface_hub`'s own client: it creates, commits, lists and downloads there."""

from __future__ import annotations

import hashlib

import pytest
from support.hub_client import ClientError, HubClient
from support.loopback_hub import DROP, TOKEN, USER, LoopbackHub

LARGE = bytes(range(256)) * 2000


@pytest.fixture(scope="module")
def hub():
    with LoopbackHub() as running:
        yield running
        assert running.unknown == []


@pytest.fixture(scope="module")
def client(hub, tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    with HubClient(hub.environment(folder), folder / "log") as process:
        process.run(
            "import os, httpx2, huggingface_hub\n"
            "api = huggingface_hub.HfApi()\n"
            "def add(**files):\n"
            "    names = {name: name.replace('__', '.') for name in files}\n"
            "    return [huggingface_hub.CommitOperationAdd(names[n], c.encode()) for n, c in files.items()]"
        )
        yield process
    assert TOKEN not in (folder / "log").read_text()


def commit(client, repo, message="one", **files):
    client.run(
        "api.create_repo(repo, exist_ok=True); api.create_commit(repo, add(**files), commit_message=message)",
        repo=repo,
        message=message,
        files=files,
    )


def test_who_it_is_and_what_it_makes(hub, client):
    assert client.run("found = api.whoami()['name']") == USER
    made = client.run("found = api.create_repo('made', private=True).repo_id")
    assert made == f"{USER}/made" and hub.repo(made).private
    assert client.run("found = api.create_repo('made', exist_ok=True).repo_id") == made
    with pytest.raises(ClientError, match=r"HfHubHTTPError: .*409"):
        client.run("api.create_repo('made')")
    with pytest.raises(ClientError, match="RepositoryNotFoundError"):
        client.run("huggingface_hub.HfApi(token=False).model_info(made)", made=made)


def test_a_commit_of_small_and_large_files(hub, client):
    commit(client, "me/files", a__json="{}", model__safetensors="large")
    assert hub.files("me/files") == {"a.json": b"{}", "model.safetensors": b"large"}
    sha = hashlib.sha256(b"large").hexdigest()
    assert hub.blobs[sha] == b"large" and len(hub.asked("PUT", sha)) == len(hub.asked("POST", "lfs-verify")) == 1
    tree = client.run(
        "api.upload_file(repo_id='me/files', path_in_repo='maps/x.bin', path_or_fileobj=b'1', commit_message='two')\n"
        "found = [api.list_repo_files('me/files'), [e.path for e in api.list_repo_tree('me/files')],"
        " [(f.path, f.size, f.lfs and f.lfs.sha256)"
        " for f in api.get_paths_info('me/files', ['model.safetensors', 'no'])]]"
    )
    assert tree == [
        [".gitattributes", "a.json", "maps/x.bin", "model.safetensors"],
        [".gitattributes", "a.json", "maps", "model.safetensors"],
        [["model.safetensors", 5, sha]],
    ]
    assert hub.history("me/files") == ["one", "two"]


def test_what_has_not_changed_is_no_commit(hub, client):
    commit(client, "me/same", a__json="{}", model__safetensors="same")
    commit(client, "me/same", "again", a__json="{}", model__safetensors="same")
    assert hub.history("me/same") == ["one"]
    assert len(hub.asked("PUT", hashlib.sha256(b"same").hexdigest())) == 1


def test_branches(hub, client):
    commit(client, "me/branches", a__json="1")
    refs = client.run(
        "api.create_branch('me/branches', branch='old')\n"
        "api.create_branch('me/branches', branch='old', exist_ok=True)\n"
        "api.create_commit('me/branches', add(a__json='2'), commit_message='two')\n"
        "found = [b.name for b in api.list_repo_refs('me/branches').branches]"
    )
    assert refs == ["main", "old"]
    assert hub.files("me/branches", revision="old") == {"a.json": b"1"} != hub.files("me/branches")
    with pytest.raises(ClientError, match="RevisionNotFoundError"):
        client.run("api.model_info('me/branches', revision='none')")
    with pytest.raises(ClientError, match="412"):
        client.run("api.create_commit('me/branches', add(b='3'), commit_message='3', parent_commit='0' * 40)")
    assert "b" not in hub.files("me/branches")


def test_downloads_with_etags_ranges_and_a_broken_connection(hub, client):
    commit(client, "me/down", a__json="{}", model__safetensors=LARGE.decode("latin-1"))
    large = hub.files("me/down")["model.safetensors"]
    download = "found = open(huggingface_hub.hf_hub_download('me/down', name), 'rb').read().decode()"
    hub.fail("GET", "/large/", DROP)
    client.run("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = 1000")  # what is kept of a broken download is chunks
    assert client.run(download, name="model.safetensors").encode() == large
    got = hub.asked("GET", f"/large/{hashlib.sha256(large).hexdigest()}")
    assert [one.status for one in got] == [200, 206]  # the second asks for the rest
    assert client.run(download, name="a.json") == "{}"
    before = len(hub.asked("GET", "/large/"))
    client.run(download, name="model.safetensors")
    assert len(hub.asked("GET", "/large/")) == before  # the ETag says that it is there already
    assert client.run(
        "url = huggingface_hub.hf_hub_url('me/down', 'a.json')\n"
        "one = httpx2.get(url)\n"
        "part = httpx2.get(url, headers={'Range': 'bytes=1-'})\n"
        "same = httpx2.get(url, headers={'If-None-Match': one.headers['etag']})\n"
        "found = [part.text, part.status_code, part.headers['content-range'], same.status_code]"
    ) == ["}", 206, "bytes 1-1/2", 304]
    with pytest.raises(ClientError, match="EntryNotFoundError"):
        client.run(download, name="b.json")


def test_a_snapshot(hub, client):
    commit(client, "me/snap", a__json="{}", model__safetensors="one")
    found = client.run(
        "folder = huggingface_hub.snapshot_download('me/snap')\n"
        "again = huggingface_hub.snapshot_download('me/snap', revision=os.path.basename(folder))\n"
        "found = [sorted(os.listdir(folder)), folder == again]"
    )
    assert found == [[".gitattributes", "a.json", "model.safetensors"], True]


def test_a_card_without_metadata_is_refused_before_anything_is_sent(hub, client):
    client.run("api.create_repo('me/card')")
    with pytest.raises(ClientError, match="Invalid metadata"):
        client.run("api.create_commit('me/card', add(README__md='---\\na: [\\n---\\n'), commit_message='x')")
    assert hub.files("me/card") == {} and not hub.asked("POST", "me/card/preupload")
