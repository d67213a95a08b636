"""Files of links: gold links in every published form, and files that count from 1."""

import json
from contextlib import nullcontext

import pytest
from datasets import Dataset, concatenate_datasets
from support.text import bitext

from hf_xalign.cli.main import main
from hf_xalign.errors import InputError
from hf_xalign.links.align import align_shards, align_words
from hf_xalign.links.files import read_gold
from hf_xalign.links.frozen import make_evaluation_links, read_links

WORDS = [(3, 3), (2, 20)]


@pytest.mark.parametrize(
    ("content", "possible", "base"),
    [
        ("0-0 1-1 2-2\n1-19\n", [[], []], 0),
        ("1-1 2-2 3-3\n2-20\n", [[], []], 1),
        ("1-1 2p2 3-3\n2p20\n", [[(1, 1)], [(1, 19)]], 1),
        ("1s1 2?2 3s3\n2s20\n", [[(1, 1)], []], 1),
        ("0-0 1p1 2-2\n1-19\n", [[(1, 1)], []], 0),
        ("1 1 1 S\n1 2 2 P\n1 3 3\n\n2 0 1\n0002 2 20 P 0.5\n", [[(1, 1)], [(1, 19)]], 1),
        ("0-0 1p1 2-2 ||| 0.5\na b ||| x y ||| 1-19\n", [[(1, 1)], []], 0),
        ("<s snum=1>\n1 1 1\n1 2 2\n1 3 3\n</s>\n<s snum=2>\n2 2 20\n</s>\n", [[], []], 1),
        ("1 1 1 s\n1 2 2 p\n1 3 3 s\n2 2 20 ?\n", [[(1, 1)], [(1, 19)]], 1),
    ],
)
def test_gold_links_of_every_form(content, possible, base, tmp_path):
    (tmp_path / "gold").write_text(content)
    gold = read_gold(tmp_path / "gold", WORDS)
    assert gold.possible == possible and gold.base == base
    assert [sorted(sure + more) for sure, more in zip(gold.sure, gold.possible)] == [
        [(0, 0), (1, 1), (2, 2)],
        [(1, 19)],
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("0-0\n\n\n", "links of sentence pair 3, and the text has 2 pairs"),
        (
            "0-3\n",
            "sentence pair 1: link 0-3 is out of range: the sides have 3 and 3 words, counted from 0.*source first",
        ),
        ("1p1 2p3\n\n", "has no sure link"),
        ("1 0 0 S\n1 1 1 S\n", "row 1: '1 0 0 S' is not a link. Write 1 14 19 S, counting from 1"),
    ],
)
def test_gold_links_that_are_not_of_the_text(content, said, tmp_path):
    (tmp_path / "gold").write_text(content)
    with pytest.raises(InputError, match=said):
        read_gold(tmp_path / "gold", WORDS)


def test_the_command_scores_the_first_pairs(tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("de\ten\n" + "a b\tx y\nc d\tz w\n" * 4)
    (tmp_path / "gold").write_text("1-1 2p2\n1-1\n")
    words = ["align-words", f"de={tmp_path}/pairs.tsv", "--gold", str(tmp_path / "gold")]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "gold: 2 of 8 sentence pairs, 2 sure and 1 possible links, counted from 1",
        "precision 75.0%  recall 100.0%  AER 16.7%",
    ]
    assert main([*words, "--output", str(tmp_path / "links")]) == 0
    assert len((tmp_path / "links").read_text().splitlines()) == 8
    assert main(["align-words", "a", "b", "--gold", "c"]) == 2
    assert "--gold is an option for one text" in capsys.readouterr().err


def test_pairs_without_gold_links_and_pairs_that_move_them(tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("eu\ten\n" + "bat bi\tone two\nhiru\tthree\nlau bost\tfour five\n")
    (tmp_path / "dictionary").write_text("one bat\nthree hiru\nfour lau\nfive bost\n")
    (tmp_path / "gold").write_text("3 1 1 S\n3 2 2 S\n")  # of the third pair alone
    words = ["align-words", f"eu={tmp_path}/pairs.tsv", "--aligner", f"dictionary:{tmp_path}/dictionary", "--gold"]
    assert main([*words, str(tmp_path / "gold")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("gold: 1 of 3 sentence pairs, 2 sure") and "precision 100.0%  recall 100.0%" in out
    assert main([*words, str(tmp_path / "gold"), "--on_empty", "drop"]) == 2
    assert "a pair that is dropped moves the links" in capsys.readouterr().err


def test_links_in_columns_that_count_from_1_are_told(tmp_path):
    row = {"source": "bat bi .", "target": "one two .", "source_lang": "eu", "target_lang": "en"}
    row |= {"source_words": row["source"].split(), "target_words": row["target"].split()}
    for links, count, refused in (([[1, 1], [2, 2]], 120, True), ([[0, 1]], 120, False), ([[1, 1]], 9, False)):
        numbered = [{**row, "source": f"bat {n}", "target": f"one {n}", "links": links} for n in range(count)]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbered))
        with pytest.raises(InputError, match="links counts words from 1") if refused else nullcontext():
            assert len(read_links(tmp_path / "a.jsonl")) == count


def test_links_of_swapped_sides_and_in_names_of_languages_are_told(tmp_path, caplog):
    sides = ("that cat and the dog are not with {}", "die Katze und der Hund sind nicht {}")
    row = {"source_lang": "German", "target_lang": "English", "links": [[0, 1]]}
    rows = []
    for number in range(30):
        texts = dict(zip(("source", "target"), (side.format(number) for side in sides)))
        rows.append(row | texts | {f"{side}_words": text.split() for side, text in texts.items()})
    (tmp_path / "a.jsonl").write_text("".join(map("{}\n".format, map(json.dumps, rows))))
    assert read_links(tmp_path / "a.jsonl").unique("source_lang") == ["de"]
    assert "a.jsonl: " in caplog.text and "the sides are swapped" in caplog.text
    caplog.clear()
    Dataset.from_list([r | {"source_lang": "de", "target_lang": "en"} for r in rows]).to_parquet(
        tmp_path / "a.parquet"
    )
    (tmp_path / "words").write_text("cat Hund\n")
    align_shards([tmp_path / "a.parquet"], tmp_path / "out", f"dictionary:{tmp_path}/words")
    assert "the shards: " in caplog.text and "the sides are swapped" in caplog.text


def test_words_that_are_null_or_numbers_and_two_pivots_are_told(tmp_path):
    row = {"source": "bat bi", "target": "one two", "source_lang": "eu", "target_lang": "en", "links": [[0, 0]]}
    row |= {"source_words": ["bat", "bi"], "target_words": ["one", "two"]}
    for odd, said in (
        ({"target_words": ["one", None]}, "a.jsonl, row 1: the column target_words is empty"),
        ({"target_words": ["one", 2]}, "a.jsonl: a column holds values of several kinds"),
        ({"target_lang": "es"}, "a.jsonl: target_lang is en and es"),
    ):
        (tmp_path / "a.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(row | odd)}\n")
        with pytest.raises(InputError, match=said):
            read_links(tmp_path / "a.jsonl")


def test_repeated_pairs_are_no_candidates(tmp_path):
    rows = [("bat bi", "one two"), ("hiru lau", "three four"), ("bost sei", "five six")]
    once, twice = (make_evaluation_links(bitext(*some)) for some in (rows, [*rows, *rows, ("bat bi", "one two !")]))
    assert twice["source"][:] == once["source"][:] == [source for source, _ in rows]
    concatenate_datasets([once, once]).to_parquet(tmp_path / "links.parquet")
    assert read_links(tmp_path / "links.parquet")["links"][:] == once["links"][:]


def test_gold_from_target_to_source_is_told(tmp_path, caplog):
    (tmp_path / "pairs.tsv").write_text("de\ten\na b c\tz x y\n")
    (tmp_path / "dictionary").write_text("x a\ny b\nz c\n")
    aligner = f"dictionary:{tmp_path / 'dictionary'}"
    for gold, told in (("0-1 1-2 2-0", False), ("1-0 2-1 0-2", True)):
        (tmp_path / "gold").write_text(gold)
        words = ["align-words", f"de={tmp_path}/pairs.tsv", "--aligner", aligner, "--gold", str(tmp_path / "gold")]
        assert main(words) == 0
        assert ("turned, its links have an AER of 0.0%" in caplog.text) == told


def test_links_to_train_on_that_are_turned_or_scored_are_refused(tmp_path):
    path, rows = tmp_path / "links", [(f"x {n} y", f"{n} a b") for n in range(20)]
    path.write_text("0-1 1-0\n" * 19 + "0-1\n")  # the number is linked in 19 rows, the other way round in all
    assert len(align_words(bitext(*rows), f"pharaoh:{path}")) == 20
    path.write_text("0-1 2-2\n" * 20)
    with pytest.raises(InputError, match=r"0 links join equal words.* and 20 would if they"):
        align_words(bitext(*rows), f"pharaoh:{path}")
    for line in ("0-1:0.93", "# Sentence pair (1)"):
        path.write_text(f"{line}\n" * 20)
        with pytest.raises(InputError, match=r"is not a link.* without scores; symal of Moses makes such lines"):
            align_words(bitext(*rows), f"pharaoh:{path}")


def test_links_to_train_on_that_count_from_1_are_refused(tmp_path):
    path = tmp_path / "links"
    path.write_text("1-1 2-2\n")
    with pytest.raises(InputError, match=r"out of range.* counts words from 1: no link names word 0\. Subtract 1"):
        align_words(bitext(("a b", "x y")), f"pharaoh:{path}")
    path.write_text("1-1\n" * 100)  # in range, but each link is that of the next word
    with pytest.raises(InputError, match="counts words from 1"):
        align_words(bitext(*[("a b c", "x y z")] * 100), f"pharaoh:{path}")
    path.write_text("1-0\n" + "1-1\n" * 99)
    assert len(align_words(bitext(*[("a b c", "x y z")] * 100), f"pharaoh:{path}")) == 100
