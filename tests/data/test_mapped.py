import sys
from pathlib import Path

import pytest
from datasets import Dataset

from hf_xalign.data.arrow import count_languages, mapped_files, release_pages, scan_columns


def file_memory():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssFile:")[1].split()[0]) / 1024


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems keep the pages")
def test_pages_that_were_read_are_given_back(tmp_path):
    text = [f"{number:0500}" for number in range(100_000)]
    Dataset.from_dict({"text": text}).map(lambda batch: batch, batched=True, cache_file_name=str(tmp_path / "a.arrow"))
    mapped = Dataset.from_file(str(tmp_path / "a.arrow"))
    release_pages(mapped_files(mapped))
    before, peak, rows = file_memory(), 0, []
    for table in scan_columns(mapped, "text"):
        rows += table["text"].to_pylist()
        peak = max(peak, file_memory() - before)
    assert rows == text and 5 < peak < 30 and file_memory() - before < 15  # MiB, of 48; the last table's pages stay
    assert mapped[[7, 99_999]]["text"] == [text[7], text[99_999]]
    assert not mapped_files(Dataset.from_dict({"text": text}))
    release_pages(frozenset())


def test_languages_of_selected_rows_are_counted_by_their_indices():
    pairs = Dataset.from_dict({"source_lang": ["de", "bn", "de", "fr"]})
    chosen = pairs.select([3, 0, 0, 2])
    assert count_languages(chosen) == {"fr": 1, "de": 3} and count_languages(pairs) == {"de": 2, "bn": 1, "fr": 1}
    [table] = scan_columns(chosen, "source_lang")
    assert table["source_lang"].to_pylist() == ["fr", *["de"] * 3]
