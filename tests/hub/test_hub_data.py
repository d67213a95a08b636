"""Datasets on the Hub: pushed, loaded by name, and at which commit a run's record says they were."""

import pytest
from huggingface_hub import ModelCard
from support.card import make_record
from support.tiny import SENTENCES

from hf_xalign.model_cards import render_card

pytestmark = pytest.mark.slow
CARD = "---\nconfigs:\n- config_name: news\n  data_files:\n  - split: test\n    path: news.parquet\n---\n"
PUSH = (
    "import datasets, io\n"
    "datasets.Dataset.from_dict(columns).to_parquet(file := io.BytesIO())\n"
    "api = huggingface_hub.HfApi()\n"
    "api.create_repo('me/text', repo_type='dataset', exist_ok=True)\n"
    "files = {'README.md': card.encode(), 'news.parquet': file.getvalue()}\n"
    "added = [huggingface_hub.CommitOperationAdd(path, content) for path, content in files.items()]\n"
    "found = api.create_commit('me/text', added, commit_message='text', repo_type='dataset').oid\n"
)
DESCRIBE = (
    "from hf_xalign.data.parallel import hub_commit, load_parallel\n"
    "from hf_xalign.recipes.parts.common import ParallelText\n"
    "from hf_xalign.recipes.parts.parallel import load_parts\n"
    "_, [entry] = load_parts(['de=me/text:news'], 'test', None, ParallelText())\n"
)


@pytest.fixture(scope="module")
def commits(here):
    """A dataset's two commits, the second with fewer rows."""
    columns = {"de": [source for source, _, _ in SENTENCES], "en": [target for _, target, _ in SENTENCES]}
    return [here.run(PUSH, card=CARD, columns={name: rows[:n] for name, rows in columns.items()}) for n in (None, 3)]


def test_commits_of_a_dataset(commits, there):
    """The record and the card name the commit; one that is asked for is loaded."""
    entry = there.run(DESCRIBE + "found = entry")
    assert (entry["hub_id"], entry["split"], entry["revision"], entry["pairs"]) == ("me/text", "test", commits[1], 3)
    record = make_record()
    record["data"]["eval"] = [entry]
    result = ModelCard(render_card(record)).data.eval_results[0]
    assert (result.dataset_type, result.dataset_config, result.dataset_split) == ("me/text", "news", "test")
    assert result.dataset_revision == commits[1]
    found = there.run(
        DESCRIBE + "old = load_parallel('me/text:news', source_lang='de', split='test', revision=commit)\n"
        "found = [len(old), hub_commit(old)]",
        commit=commits[0],
    )
    assert found == [len(SENTENCES), commits[0]]
