"""The loopback Hub answers `huggingface_hub`'s own client: it creates, commits, lists and downloads there."""

from __future__ import annotations

import hashlib

import pytest
from support.hub_client import ClientError
from support.loopback_hub import DROP, USER

pytestmark = pytest.mark.slow
LARGE = bytes(range(128)) * 4000
HELPERS = (
    "import os, httpx2, huggingface_hub\n"
    "api = hub.HfApi()\n"
    "def add(**files):\n"
    "    names = {name: name.replace('__', '.') for name in files}\n"
    "    return [huggingface_hub.CommitOperationAdd(names[n], c.encode()) for n, c in files.items()]"
)


@pytest.fixture(scope="module")
def client(here):
    here.run(HELPERS)
    return here


def commit(client, repo, message="one", **files):
    code = "api.create_repo(repo, exist_ok=True); api.create_commit(repo, add(**files), commit_message=message)"
    client.run(code, repo=repo, message=message, files=files)


def test_repositories(hub, client):
    assert client.run("found = api.whoami()['name']") == USER
    made = client.run("found = api.create_repo('made', private=True).repo_id")
    assert made == f"{USER}/made" and hub.repo(made).private
    assert client.run("found = api.create_repo('made', exist_ok=True).repo_id") == made
    with pytest.raises(ClientError, match=r"HfHubHTTPError: .*409"):
        client.run("api.create_repo('made')")
    with pytest.raises(ClientError, match="RepositoryNotFoundError"):
        client.run("huggingface_hub.HfApi(token=False).model_info(made)", made=made)


def test_commits_of_small_and_large_files(hub, client):
    commit(client, "me/files", a__json="{}", model__safetensors="large")
    commit(client, "me/files", "the same", a__json="{}", model__safetensors="large")  # what has not changed is none
    assert hub.files("me/files") == {"a.json": b"{}", "model.safetensors": b"large"}
    sha = hashlib.sha256(b"large").hexdigest()
    assert hub.blobs[sha] == b"large" and len(hub.asked("PUT", sha)) == 1
    assert hub.asked("POST", "lfs-verify")
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
    with pytest.raises(ClientError, match="Invalid metadata"):  # before anything is sent
        client.run("api.create_commit('me/files', add(README__md='---\\na: [\\n---\\n'), commit_message='x')")
    assert "README.md" not in hub.files("me/files")


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
    commit(client, "me/down", a__json="{}", model__safetensors=LARGE.decode("ascii"))
    download = "found = open(huggingface_hub.hf_hub_download('me/down', name), 'rb').read().decode()"
    hub.fail("GET", "/large/", DROP)
    client.run("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = 1000")  # what is kept of a broken download is chunks
    assert client.run(download, name="model.safetensors").encode() == LARGE
    got = hub.asked("GET", f"/large/{hashlib.sha256(LARGE).hexdigest()}")
    assert [one.status for one in got] == [200, 206]  # the second asks for the rest
    assert client.run(download, name="a.json") == "{}"
    client.run(download, name="model.safetensors")
    assert len(hub.asked("GET", got[0].path)) == 2  # the ETag says that it is there already
    assert client.run(
        "url = huggingface_hub.hf_hub_url('me/down', 'a.json')\n"
        "one = httpx2.get(url)\n"
        "part = httpx2.get(url, headers={'Range': 'bytes=1-'})\n"
        "same = httpx2.get(url, headers={'If-None-Match': one.headers['etag']})\n"
        "found = [part.text, part.status_code, part.headers['content-range'], same.status_code]"
    ) == ["}", 206, "bytes 1-1/2", 304]
    with pytest.raises(ClientError, match="EntryNotFoundError"):
        client.run(download, name="b.json")
    found = client.run(
        "folder = huggingface_hub.snapshot_download('me/down')\n"
        "again = huggingface_hub.snapshot_download('me/down', revision=os.path.basename(folder))\n"
        "found = [sorted(os.listdir(folder)), folder == again]"
    )
    assert found == [[".gitattributes", "a.json", "model.safetensors"], True]
