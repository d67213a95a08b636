from __future__ import annotations

import unicodedata

import pytest

from hf_xalign.data.dictionary import DictionaryLinker, load_dictionary
from hf_xalign.errors import InputError


def _write(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "en-xx.txt"
    path.write_bytes(text.encode(encoding))
    return path


def test_reads_tabs_blanks_and_several_translations(tmp_path):
    path = _write(tmp_path, "the\tder\nthe\tdie\n\nhouse Haus\r\ncomputer\tmáy tính\n")
    entries = [("the", "der"), ("the", "die"), ("house", "Haus"), ("computer", "máy tính")]
    assert load_dictionary(path) == entries


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path):
    assert load_dictionary(_write(tmp_path, "the\tder\n", "utf-8-sig")) == [("the", "der")]


def test_entries_become_nfc(tmp_path):
    decomposed = unicodedata.normalize("NFD", "Öl")
    assert decomposed != "Öl"
    assert load_dictionary(_write(tmp_path, f"oil\t{decomposed}\n")) == [("oil", "Öl")]


@pytest.mark.parametrize("line", ["alone", "three fields here", "a\tb\tc", "a\t ", "\tb"])
def test_malformed_line_names_file_and_row(tmp_path, line):
    path = _write(tmp_path, f"good\tgut\n{line}\n")
    with pytest.raises(InputError, match=r"en-xx\.txt, row 2"):
        load_dictionary(path)


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.txt"):
        load_dictionary(tmp_path / "none.txt")
    with pytest.raises(InputError, match=r"en-xx\.txt.*UTF-8"):
        load_dictionary(_write(tmp_path, "oil\tÖl\n", "latin-1"))
    with pytest.raises(InputError, match="no entries"):
        load_dictionary(_write(tmp_path, "\n\n"))


def test_links_only_what_leaves_no_doubt():
    linker = DictionaryLinker(
        [("house", "haus"), ("home", "haus"), ("the", "das"), ("the", "der"), ("is", "ist"), ("open", "offen")]
    )

    def link(source, target):
        return linker([source.split()], [target.split()])[0]

    assert link("das haus ist offen", "open is the house") == [(0, 2), (1, 3), (2, 1), (3, 0)]
    assert link("haus", "house home") == []  # two translations stand there
    assert link("das der", "the") == []  # the same from the other side
    assert link("haus haus", "house") == []  # the source word occurs twice
    assert link("haus", "house house") == []  # the target word does
    assert link("das das haus", "the house") == [(2, 1)]
    assert link("unbekannt", "unknown") == []
    assert linker([], []) == []
