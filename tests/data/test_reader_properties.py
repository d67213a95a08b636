"""Whatever bytes a file holds, a reader gives rows, or an InputError that names the file and the line."""

import gzip
import io
import re
import unicodedata

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_xalign.data.derived.treebank import read_trees
from hf_xalign.data.dictionary import load_dictionary
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.parallel import load_parallel
from hf_xalign.errors import InputError
from hf_xalign.links.pharaoh import read_pharaoh


def parallel(path):
    return [tuple(row.values()) for row in load_parallel(path, source_lang="de")]


def aligned(path):
    other = path.with_name("other.en")
    other.write_text("a\nb\n")
    return [tuple(row.values()) for row in load_parallel((path, other), source_lang="de")]


def parquet():
    buffer = io.BytesIO()
    Dataset.from_dict({"source": ["aä", "b"], "target": ["c", "d"], "text": ["e", ""]}).to_parquet(buffer)
    return buffer.getvalue()


def is_pair(row):
    source, target, *languages = row
    return languages == ["de", "en"] and source == unicodedata.normalize("NFC", source.strip()) != "" != target


def is_links(row):
    return all(min(link) >= 0 for link in row)


def is_tree(tree):
    return len({len(part) for part in tree}) == 1 and all(0 <= head <= len(tree.words) for head in tree.heads)


LINES = [b"a", b"\xc3\xa4", b" ", b"\t", b"\n", b"\r\n", b"\xff", b"\xef\xbb\xbf", b"\0", b"\xc2\x85"]
JSON = [b'{"source": "a", "target": "b", "text": "c"}', b'{"source": ', b'"target": ', b'"a"', b"null", b"[1]", b","]
JSON += [b"}", b"\n", b'"\\ud800"', b"1" * 5000, b"[" * 3000, b"NaN", b"\xff"]
JSON += [b'{"source": 1, "target": 2, "text": 3}']
UNIT = b'<tu><tuv lang="de"><seg>a</seg></tuv><tuv xml:lang="EN-gb"><seg>b</seg></tuv></tu>'
XML = [UNIT, b"<tmx>", b"</tmx>", b"<body>", b"</body>", b"<tu>", b"<seg>", b"&amp;", b"&x;", b"<hi>" * 3000]
CODECS = (b"utf-8", b"latin-1", b"big5", b"no", b"hex", b"utf-16")
XML += [b'<?xml version="1.0" encoding="%s"?>' % name for name in CODECS]
XML += [b'<!DOCTYPE a [<!ENTITY x "y">]>', b"<a/>", b" ", b"\xff"]
WORD = b"1\ta\ta\tX\t_\t_\t0\troot\t_\t_\n"
LONG = WORD.replace(b"\t0", b"\t" + b"9" * 5000)
TREES = [WORD, WORD.replace(b"1\t", b"2\t").replace(b"\t0", b"\t1"), WORD.replace(b"1\t", b"1.1\t"), LONG, b"\n"]
TREES += [b"\t", b"# x\n", b"1-2\t_\n", b"\xff", "²".encode(), "٠".encode()]
LINKS = [b"0-0", b"1-2", b" ", b"\n", b"-", b"9" * 5000, "²-1".encode(), b"\xff", b"\0"]
PARQUET, UNREAD = parquet(), "cannot be read|empty|no column|gzip data"
# Name of the file: (reader, what a row is, parts of content, a whole good file, errors that are of no one line).
READERS = {
    "p.tsv": (parallel, is_pair, LINES, b"a\tb\nc\td\n", "no sentence pairs"),
    "p.jsonl": (parallel, is_pair, JSON, JSON[0] + b"\n" + JSON[0], "no sentence pairs"),
    "p.tmx": (parallel, is_pair, XML, b"<tmx><body>%b</body></tmx>" % (UNIT * 2), "XML|no unit|encoding|unit 0"),
    "p.parquet": (parallel, is_pair, [b"PAR1", b"\0"], PARQUET, "as Parquet|no columns"),
    "text.de": (aligned, is_pair, LINES, b"c\nd\n", "no sentence pairs"),
    "en-xx.txt": (load_dictionary, all, LINES, b"the\tder\nhouse Haus\n", "no entries"),
    "links": (lambda path: list(read_pharaoh(path)), is_links, LINKS, b"0-0 1-2\n\n", "x^"),
    "t.conllu": (lambda path: list(read_trees(path)), is_tree, TREES, WORD + b"\n" + WORD, "x^"),
    "a.txt": (load_monolingual, dict, LINES, b"a\nb\n", UNREAD),
    "a.parquet": (load_monolingual, dict, [b"PAR1"], PARQUET, UNREAD),
    "a.jsonl.gz": (load_monolingual, dict, JSON, gzip.compress(JSON[0]), UNREAD),
}


def damaged(parts, good):
    """Return a strategy for random bytes, the format's own parts in any order, and a good file with changes."""

    def change(edits):
        content = bytearray(good)
        for place, length, new in edits:
            content[place : place + length] = new
        return bytes(content)

    edit = st.tuples(st.integers(0, len(good)), st.integers(0, 3) | st.just(len(good)), st.binary(max_size=3))
    joined = st.lists(st.sampled_from(parts), max_size=8).map(b"".join)
    return st.one_of(joined, st.lists(edit, min_size=1, max_size=3).map(change), st.binary(max_size=30))


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_give_rows_or_an_error_that_names_file_and_line(name, tmp_path_factory):
    read, is_row, parts, good, of_no_line = READERS[name]
    path = tmp_path_factory.mktemp("bytes") / name
    path.write_bytes(good)
    assert len(read(path)) >= 1
    outcomes = set()

    @settings(max_examples=100)
    @given(damaged(parts, good))
    def check(content):
        path.write_bytes(content)
        try:
            rows = read(path)
        except InputError as error:
            named = str(path.parent) in str(error)
            assert named and re.search(rf"(row|line) \d+|{of_no_line}", str(error)), str(error)
            outcomes.add("refused")
        else:
            assert all(map(is_row, rows))
            outcomes.add("read")

    check()
    assert outcomes == {"refused", "read"}, "one of the two outcomes was never seen"
