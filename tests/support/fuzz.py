"""Strategies of damaged files, and what every reader owes them: a result, or one line that names the file.

A reader's name is that of its folder in `tests/cases`; its file there has the name that it has in a user's folder.
"""

import contextlib
import copy
import gzip
import io
import json
import os
import re
import resource
import shutil
import signal
import traceback
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from hypothesis import strategies as st

from hf_xalign.data import load_parallel
from hf_xalign.data.derived.word_order import load_treebank
from hf_xalign.data.load import stream_parallel
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.readers import load_dictionary
from hf_xalign.errors import InputError
from hf_xalign.links.files import PharaohReader, read_pharaoh
from hf_xalign.mapping import read_word2vec
from hf_xalign.tasks import read_examples, read_questions
from support.text import CONLLU, tmx

CASES = Path(__file__).parents[1] / "cases"
SECONDS = 20  # an example that takes longer hangs: ten times what the slowest takes on a busy machine
MEMORY = 1 << 30  # bytes that an example may add


class _HangError(BaseException): ...


@dataclass(frozen=True)
class Reader:
    """File name, contents to damage, and the calls; `others` are files next to it, `form` its structure.

    A reader with `of_no_line`, the messages about a whole file, names the row or line in all others.
    """

    name: str
    seeds: list[bytes]
    reads: list[Callable[[Path], Any]]
    form: str = "text"
    others: dict[str, bytes] = field(default_factory=dict)
    of_no_line: str | None = None


def check(reader: Reader, data: bytes, folder: Path) -> list[str]:
    """Read a file of this content in an empty folder, and return the messages of the calls that refuse it.

    Raises:
        AssertionError: a message is not one line that names the file, or a call does not end.
        Exception: a call raises something else.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / reader.name
    for name, content in {**reader.others, reader.name: data}.items():
        (folder / name).write_bytes(content)
    os.environ["HF_XALIGN_CACHE"] = str(folder / ".cache")
    messages = []
    for read in reader.reads:
        try:
            with _limits():
                read(path)
        except InputError as error:
            message = str(error)
            assert message.isprintable(), f"the message is no line: {message!a}"
            assert str(folder) in message, f"the message names no file: {message}"
            assert "Traceback" not in message, f"the message has a traceback: {message}"
            assert len(message) < 2100, f"the message has {len(message)} characters"
            if reader.of_no_line is not None:
                of_file = rf"damaged compressed|{reader.of_no_line}"  # content may begin like gzip by chance
                assert re.search(rf"(row|line) \d+|{of_file}", message), f"the message names no line: {message}"
            messages.append(message)
    return messages


def keep(name: str, reader: Reader, data: bytes, error: BaseException) -> Path:
    """Write a failing content into `tests/cases`, under the error and the last line of the product that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/tests/" not in frame.filename and "/.venv/" not in frame.filename]
    last = (ours or list(frames))[-1]
    at = re.sub(r"\W+", "-", f"{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}".lower())
    path = CASES / name / f"{at}.{reader.name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@contextlib.contextmanager
def _limits():
    def stop(*_):
        raise _HangError

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    except _HangError as error:
        raise AssertionError(f"more than {SECONDS} seconds") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


# Contents -----------------------------------------------------------------------------------------------------------

_ODD = ["", " ", "\t", "\n", "\r", "\r\n", "\n\n", "\0", "\x01\x02", "\x1b[31m", "\x85", "\u2028", "\u2029", "\u00a0"]
_ODD += [
    "\ufeff", "\u200d", "\u202e", "\u0301", "e\u0301", "\u0345" * 50, "\ufdfa", "ﬀ", "ß", "İ", "ı", "שלום", "سلام",
]  # fmt: skip
_ODD += [
    "字", "ក្សា", "👩‍👩‍👧", "\U0010ffff", "\ue000", "²", "٣", "Ⅷ", "½", "-", "_", "#", "/", "..", "0", "1", "-1",
    "1.5",
]  # fmt: skip
_ODD += [
    "1e999", "nan", "-inf", "1" * 30, "0x1", "1_0", "true", "null", "~", "no", "'", '"', "`", "\\",
    "\\ud800",
]  # fmt: skip
_ODD += [
    "\\u0000", "&amp;", "&#0;", "&#x110000;", "&lt;" * 50, "<", ">", "<seg>", "<!DOCTYPE a>", "<?xml?>", "]]>", "{",
    "}",
]  # fmt: skip
_ODD += [
    "[", "]", ":", "- ", "? ", "&a ", "*a", "!!python/object:a", "!!binary a", "%", "@",
    "|",
]  # fmt: skip
_ODD += [
    "http://xn--a.xn--", "www.", "a@b.", "http://[::1", "-DOCSTART-", "B-X", "I-X", "O", "x" * 300, "a b", "de",
    "en",
]  # fmt: skip
_VALUES = [None, True, False, 0, 1, -1, 1.5, -0.0, float("nan"), float("inf"), 1e308]
_VALUES += [
    "", " ", "x", "0", "a\nb", "\ud800", "\x1b[2J", "\u2028", "../x", "/etc/passwd", "x" * 300, "de",
]  # fmt: skip
_VALUES += [[], {}, [[]], [None], [0], ["x"], [["x", 1]], {"": None}, {"a\nb": 1}, {"\udfff": 1}, {"text": "x"}]

_value = st.sampled_from(_VALUES).map(copy.deepcopy)
_PIECE = re.compile(rb"[A-Za-z0-9]+|\s|.", re.DOTALL)
_UTF8 = [text.encode() for text in _ODD]
_JUNK = st.one_of(
    st.sampled_from(
        [*_UTF8, b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xfe\xff", b"\x1f\x8b\x08", b"\x89\xab\xcd\xef" * 4]
    ),
    st.text(max_size=20).map(str.encode),
    st.binary(max_size=20),
)


@st.composite
def _edited(draw: Any, content: bytes) -> bytes:
    """Delete, repeat, swap, replace, insert or flip pieces of a content."""
    pieces: list[bytes] = _PIECE.findall(content)
    for _ in range(draw(st.integers(1, 6))):
        start, other = (draw(st.integers(0, max(len(pieces) - 1, 0))) for _ in range(2))
        end = start + draw(st.sampled_from([1, 1, 2, 5, 30]))
        match draw(st.sampled_from(["delete", "repeat", "swap", "replace", "insert", "flip", "cut", "many"])):
            case "delete":
                del pieces[start:end]
            case "repeat":
                pieces[start:start] = pieces[start:end]
            case "swap" if pieces:
                pieces[start], pieces[other] = pieces[other], pieces[start]
            case "replace":
                pieces[start:end] = [draw(_JUNK)]
            case "insert":
                pieces.insert(start, draw(_JUNK))
            case "flip" if pieces and pieces[start]:
                own = bytearray(pieces[start])
                own[other % len(own)] ^= draw(st.integers(1, 255))
                pieces[start] = bytes(own)
            case "cut":
                del pieces[start:]
            case "many":
                pieces[start:end] = pieces[start:end] * draw(st.sampled_from([3, 100]))
    return b"".join(pieces)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of nested values."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [(value, key) for key, _ in items]
    return found + [place for container, key in found for place in _places(container[key])]


@st.composite
def _changed(draw: Any, value: Any) -> Any:
    """Give fields of nested values other values and names, or none."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 4))):
        if not (places := _places(value)):
            return draw(_value)
        container, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "replace", "delete", "rename", "wrap", "move", "repeat"])):
            case "replace":
                container[key] = draw(st.one_of(_value, st.text(max_size=10), st.integers()))
            case "delete":
                del container[key]
            case "rename" if isinstance(container, dict):
                container[draw(st.sampled_from([name for name in _VALUES if type(name) is str]))] = container.pop(key)
            case "wrap":
                container[key] = draw(st.sampled_from([[container[key]], {"x": container[key]}]))
            case "move":
                other, name = draw(st.sampled_from(places))
                if name in range(len(other)) if isinstance(other, list) else name in other:
                    container[key] = copy.deepcopy(other[name])
            case "repeat" if isinstance(container, list):
                container.insert(key, copy.deepcopy(container[key]))
    return value


def _dump(value: Any, escaped: bool) -> bytes:
    return json.dumps(value, ensure_ascii=escaped).encode(errors="surrogatepass")


def _json(seed: bytes) -> st.SearchStrategy[bytes]:
    return st.builds(_dump, _changed(json.loads(seed)), st.booleans())


def _jsonl(seed: bytes) -> st.SearchStrategy[bytes]:
    rows = _changed([json.loads(line) for line in seed.splitlines()])
    return st.builds(
        lambda found, escaped: b"\n".join(_dump(row, escaped) for row in (found if type(found) is list else [found])),
        rows,
        st.booleans(),
    )


def _parquet(columns: dict[str, list[Any]]) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


_FORMS = {"json": _json, "jsonl": _jsonl}


def contents(reader: Reader) -> st.SearchStrategy[bytes]:
    """Return damaged contents of a reader's file, and plain bytes."""
    edited = st.sampled_from(reader.seeds).flatmap(_edited)
    if reader.form == "text":
        return st.one_of(edited, edited, st.text(max_size=60).map(str.encode), st.binary(max_size=200))
    formed = st.sampled_from(reader.seeds).flatmap(_FORMS[reader.form])
    return st.one_of(formed, formed, edited, formed.flatmap(_edited), st.binary(max_size=100))


# Readers ------------------------------------------------------------------------------------------------------------


def _utf8(text: str) -> str:
    text.encode()  # half a surrogate pair is no text
    return text


def _stream(path: Path, other: str = "") -> None:
    for pair in stream_parallel(f"{path},{path.parent / other}" if other else str(path), source_lang="de"):
        _utf8("".join(pair))


def _load(path: Path, other: str = "") -> None:
    source = f"{path},{path.parent / other}" if other else path
    loaded = load_parallel(source, source_lang="de", on_empty="drop")
    _utf8(str(loaded[:]))
    for side, code in (("source", "de"), ("target", "en")):
        assert {*loaded[f"{side}_lang"]} <= {code}
        assert all(text and text == unicodedata.normalize("NFC", text.strip()) for text in loaded[side])


def _tagged(path: Path) -> None:
    read_examples(f"de={path}", "token")


def _texts(path: Path) -> None:
    read_examples(f"de={path}", "sequence")


def _mono(path: Path) -> None:
    _utf8(str(load_monolingual(path, words=True)[:]))


def _links(path: Path) -> None:
    words = [["a"] * 3] * 2
    reader = PharaohReader(path, 2)
    reader(words, words)
    assert all(number >= 0 for row in read_pharaoh(path) for link in row for number in link)


def _dictionary(path: Path) -> None:
    assert all(map(all, load_dictionary(path)))


def _trees(path: Path) -> None:
    for row in load_treebank(path):
        assert {len(row["tokens"])} == {*map(len, row.values())} and max(row["heads"]) <= len(row["tokens"])


def _questions(path: Path) -> None:
    read_questions(f"de={path}")


def _lines(*rows: Any) -> bytes:
    return b"".join(_dump(row, False) + b"\n" for row in rows)


_QUESTION = {"id": "1", "question": "Wo?", "context": "im Haus", "question_lang": "en", "context_lang": "de"}
_QUESTION |= {"answers": {"text": ["Haus"], "answer_start": [3]}}
_TAGGED = {"tokens": ["Ann", "liest"], "labels": ["B-X", "O"]}
_PAIR = {"source": "Haus", "target": "house", "source_lang": "de", "target_lang": "en"}
_COLUMNS = {name: [value] * 2 for name, value in _PAIR.items()}
_WORDS = {**_PAIR, "source_words": ["Haus"], "target_words": ["house"], "links": [[0, 0]], "all_links": [[0, 0]]}
_CODES = {"de": "Haus", "en": "house"}
_LABELLED = {"text": "ein Satz", "label": "x"}
_ANSWER = {"id": "q1", "question": "Wo?", "answers": [{"text": "im Haus", "answer_start": 4}]}
_SQUAD = {"data": [{"title": "x", "paragraphs": [{"context": "ist im Haus", "qas": [_ANSWER]}]}]}
_PIECES = {"AddToPlaylist": [{"data": [{"text": "add "}, {"text": "Ann", "entity": "artist"}]}]}
_SLOTS = b'i\t0:3:x\tcall\ten\t{"tokenizations": [{"tokenSpans": [{"start": 0, "length": 3}], "tokens": ["call"]}]}\n'
_CONLL = b"-DOCSTART- O\n\nAnn B-X\nliest O\n# a comment\n\nBob B-X\nBerg I-X\n"
_TMX = tmx([("de", "Haus<ph x='1'/>"), ("en", "house")], [("de-AT", "<bpt>x</bpt>Hund"), ("en", "dog")]).encode()
_TSV, _CSV = b"Haus\thouse\nder Hund\tthe dog\n", b'de,en,n\n"Haus, da",house,1\nHund,"a ""dog""",2\n'
_aligned = [partial(_stream, other="p.en"), partial(_load, other="p.en")]
_JSONL = [_lines(_PAIR, _PAIR), _lines(_WORDS), _lines({"translation": _CODES})]
_parallel, _examples = [_stream, _load], [_texts, _tagged]
_NO_PAIRS, _NO_TEXT = r"no sentence pairs|occurs \d times", "is empty|no text column|no sentences"

READERS = {
    "pairs-tsv": Reader("p.tsv", [_TSV, b"source\ttarget\n" + _TSV], _parallel, of_no_line=_NO_PAIRS),
    "pairs-csv": Reader("p.csv", [_CSV, _CSV.replace(b",", b";")], _parallel),
    "pairs-gz": Reader("p.tsv.gz", [gzip.compress(_TSV * 3)], _parallel),
    "pairs-jsonl": Reader("p.jsonl", _JSONL, _parallel, "jsonl", of_no_line=_NO_PAIRS),
    "pairs-json": Reader("p.json", [_dump([_WORDS], True), _dump({"x": [_PAIR]}, True)], _parallel, "json"),
    "pairs-parquet": Reader("p.parquet", [_parquet(_COLUMNS)], _parallel),
    "pairs-tmx": Reader("p.tmx", [_TMX], _parallel, of_no_line="XML|no unit|encoding|unit 0"),
    "pairs-aligned": Reader(
        "p.de", [b"Haus\nHund\n"], _aligned, others={"p.en": b"house\ndog\n"}, of_no_line=_NO_PAIRS
    ),
    "text-txt": Reader("t.txt", ["ein Satz\nnoch einer\u2028\n".encode()], [_mono], of_no_line=_NO_TEXT),
    "text-jsonl": Reader(
        "t.jsonl", [_lines({"text": "a"}), _lines({"text": ["a"]})], [_mono], "jsonl", of_no_line=_NO_TEXT
    ),
    "text-parquet": Reader("t.parquet", [_parquet({"text": ["Haus", "Hund"]})], [_mono]),
    "dictionary": Reader("d.txt", [b"house\tHaus\ndog Hund\n"], [_dictionary], of_no_line="no entries"),
    "pharaoh": Reader("l.txt", [b"0-0 1-2\n\n", b"2-2\n0-1\n"], [_links], of_no_line=" lines for 2 "),
    "vectors": Reader("v.vec", [b"2 2\nHaus 1 0.5\nHund 0 2e-3\n", b"Haus 1 0.5\n"], [read_word2vec]),
    "vectors-binary": Reader("v.bin", [b"2 1\na \0\0\x80?\nb \0\0\0@\n"], [read_word2vec]),
    "labelled-conll": Reader("l.conll", [_CONLL, b"Ann\tB-X\n#\tO\n"], _examples),
    "labelled-conllu": Reader("l.conllu", [CONLLU.encode()], _examples),
    "labelled-tsv": Reader("l.tsv", [b"text\tlabel\nein Satz\tx\n", b"Ann\tB-X\nliest\tO\n\n", _SLOTS], _examples),
    "labelled-csv": Reader("l.csv", [b"premise,hypothesis,label\na,b,yes\n"], _examples),
    "labelled-jsonl": Reader("l.jsonl", [_lines(_TAGGED, _TAGGED), _lines(_LABELLED)], _examples, "jsonl"),
    "labelled-json": Reader("l.json", [_dump(_PIECES, True), _dump([_TAGGED], True)], _examples, "json"),
    "questions-json": Reader("q.json", [_dump(_SQUAD, True)], [_questions], "json"),
    "questions-jsonl": Reader("q.jsonl", [_lines(_QUESTION)], [_questions], "jsonl"),
    "treebank": Reader("t.conllu", [CONLLU.encode()], [_trees], of_no_line="no sentences"),
}
