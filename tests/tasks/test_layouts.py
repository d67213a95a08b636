"""Labelled text in the formats of published data sets, read without naming a column."""

import json
import logging
import re
from functools import partial

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from support.labelled import check

from hf_xalign.errors import InputError
from hf_xalign.tasks import labelled_files, read_examples

SAID = "change my alarm tomorrow to wake me up 30 minutes earlier"
SPANS = [{"start": word.start(), "length": len(word[0])} for word in re.finditer(r"\w+", SAID)]
FACEBOOK = f"alarm/modify_alarm\t16:24:datetime,39:57:datetime\t{SAID}\ten_XX\t"
FACEBOOK += json.dumps({"tokenizations": [{"tokens": SAID.split(), "tokenSpans": SPANS, "tokenizerType": 2}]})
SLOTS = "O O O B-datetime O O O O B-datetime I-datetime I-datetime"
SNIPS = [{"text": "add "}, {"text": "Sabrina  Salerno", "entity": "artist"}, {"text": " to my "}]
SNIPS += [{"text": "pop", "entity": "playlist"}, {"text": "'s list"}]
ENGLISH = ["EU NNP I-NP I-ORG", "UN NNP I-NP B-ORG", "UN NNP I-NP I-ORG", "in IN I-PP O", "UK NNP I-NP I-LOC"]
IOB1 = "\n".join(["-DOCSTART- -X- -X- O", "", *ENGLISH, "Ltd NNP I-NP I-ORG"])
ONTONOTES = "bc/x 0 0 Tórshavn NNP (NP*) - (GPE) (0)\nbc/x 0 1 liggur VB * - * -\n\nbc/x 0 0 Ja UH * - * -\n"
LABEL_FIRST = "\n\n".join("".join(f"{tag} {tag}{n}\n" for tag in ("NOUN", "VERB", "X")) for n in range(40))
DUTCH = "-DOCSTART- -DOCSTART- O\nDe Art O\nLenzi N B-PER\n"
ATIS = "id\tutterance\tslot_labels\tintent\n1\tto new york\tO B-city I-city\tatis_flight\n"
XNLI_ALL = json.dumps(
    {
        "premise": {"ar": "x", "de": "Hund"},
        "hypothesis": {"language": ["ar", "de"], "translation": ["y", "Tier"]},
        "label": 0,
    }
)
XNLI = "language\tgold_label\tsentence1_parse\tsentence1\tsentence2\tpairID\n"
XNLI += 'ar\tneutral\t\ta\tb\t1\nde\tentailment\t\t"Ja\tNein\t1\n'
TRANSLATED = "premise\thypo\tlabel\na\tb\tcontradictory\n"
MULTINLI = "".join(json.dumps({"gold_label": x, "sentence1": "a", "sentence2": "b"}) + "\n" for x in ("-", "neutral"))
SICK = "pair_ID\tsentence_A\tsentence_B\tentailment_label\n1\ta b\tc d\tNEUTRAL\n"
PAWS = "id\tsentence1\tsentence2\tlabel\n1\ta\tb\t1\n2\tNS\tNS\t0\n"
REVIEWS = "".join(
    json.dumps({"review_body": text, "stars": "5", "language": code}) + "\n"
    for text, code in (("Bon.", "fr"), ("Gut.", "de"))
)
MASSIVE = '{{"utt": "x", "intent": "alarm", "annot_utt": "{}"}}'
PRINTED = "tokens,{}\n\"{}\",\"['O', 'B-PER']\"\n"
NUMBERS = '{"tokens": ["Tartu", "on"], "ner_tags": [1, 0]}'
DOCCANO = '{"text": "Ana živi", "label": [[0, 3, "PER"]]}'
PRODIGY = '{"text": "Ana živi", "tokens": ["Ana", "živi"], "spans": [{"start": 0, "end": 3, "label": "PER"}]}'
NUMBERED = "".join(f"{n}.1\tИван\tN\n{n}.2\tспи\tV\n\n" for n in range(3))
ONE_WORD = '{"tokens": ["Ana"], "labels": ["B-PER"]}\n' * 18
# Data set: file, content, language; words and labels that come of it.
WORDS = {
    "CoNLL-2002, Spanish": ("esp.testa", "Sao B-LOC\nPaulo I-LOC\n( O\n\n", "es", "Sao Paulo (", "B-LOC I-LOC O"),
    "CoNLL-2002, Dutch": ("ned.train", DUTCH, "nl", "De Lenzi", "O B-PER"),
    "CoNLL-2003, IOB1": ("eng.train", IOB1, "en", "EU UN UN in UK Ltd", "B-ORG B-ORG I-ORG O B-LOC B-ORG"),
    "CoNLL-2003, German": ("deu.testb", "ARD ARD NE I-NC I-ORG\n", "de", "ARD", "B-ORG"),
    "CoNLL's own suffix": ("dev.auto_conll", "Eskişehir B-LOC\n", "tr", "Eskişehir", "B-LOC"),
    "pioNER": ("dev.conll03", "Երևան NNP NP B-LOC\n", "hy", "Երևան", "B-LOC"),
    "WikiANN": ("train", "fr:R\tB-PER\nfr::\tO\nfr:fr:x\tO\n", "fr", "R : fr:x", "B-PER O O"),
    "WikiANN in XTREME": ("dev-fr.tsv", "R\tO\na:b\tB-PER\n\nx\tO\n", "fr", "R a:b", "O B-PER"),
    "addresses": ("train", "http://a O\nhttp://b B-LOC\n", "en", "http://a http://b", "O B-LOC"),
    "MultiATIS++": ("train_EN.tsv", ATIS, "en", "to new york", "O B-city I-city"),
    "Facebook": ("train-en.tsv", f"{FACEBOOK}\n", "en", SAID, SLOTS),
    "KLUE": (
        "dev.tsv",
        "## k\t<서울:LC> 비\n서\tB-LC\n울\tI-LC\n \tO\n비\tO\n\n비\tO\n",
        "ko",
        "서 울 비",
        "B-LC I-LC O",
    ),
    "XTREME's parts of speech": ("test-de.tsv", "Er\tPRON\ngeht\tVERB\n\nSie\tPRON\n", "de", "Er geht", "PRON VERB"),
    "WikiNEuRal": ("train.conllu", "0\tHún\tO\n1\tReykjavík\tB-LOC\n\n0\tHér\tO\n", "is", "Hún Reykjavík", "O B-LOC"),
    "a tab after each row": ("a.tsv", "Paris\tB-LOC\t\nruht\tO\t\n\nEr\tO\t\n", "de", "Paris ruht", "B-LOC O"),
    "a header over words": ("a.tsv", "token\tlabel\nOslo\tB-LOC\n\nEr\tO\n", "nb", "Oslo", "B-LOC"),
    "polyglot-NER": ("a.jsonl", '{"words": ["Oslo"], "ner": ["B-LOC"]}\n', "nb", "Oslo", "B-LOC"),
    "a table of lists": ("a.json", '{"tokens": [["Bakı"]], "tags": [["B-LOC"]]}', "az", "Bakı", "B-LOC"),
    "columns in capitals": ("a.csv", "Tokens,NER_tags\nin Oslo,O B-LOC\n", "nb", "in Oslo", "O B-LOC"),
    "tags": ("a.jsonl", '{"tokens": ["Oslo"], "tags": ["B-LOC"]}\n', "nb", "Oslo", "B-LOC"),
    "PhoNER": ("a.jsonl", '{"words": ["Huế"], "tags": ["B-LOC"]}\n', "vi", "Huế", "B-LOC"),
    "SNIPS": (
        "train_Add.json",
        json.dumps({"AddToPlaylist": [{"data": SNIPS}]}),
        "en",
        "add Sabrina Salerno to my pop's list",
        "O B-artist I-artist O O B-playlist O",
    ),
    # The last column is an annotator, inner labels, links, a language or slots behind an intent.
    "UNER": ("a.iob2", "# text = O S\n1\tOlim\tB-PER\t-\tx1\n2\tS\tB-LOC\t-\tx1\n", "uz", "Olim S", "B-PER B-LOC"),
    "GermEval": ("a.tsv", "#\tx\n1\tKölner\tB-ORG\tB-LOCderiv\n2\tZoo\tI-ORG\tO\n", "de", "Kölner Zoo", "B-ORG I-ORG"),
    "xSID": ("a.conll", "# text: i Ry\n# intent: f\n1\ti\tf\tO\n2\tRy\tf\tB-a\n", "da", "i Ry", "O B-a"),
    "HIPE": ("a.tsv", "TOKEN\tNE-COARSE-LIT\tNEL-LIT\n# x\nZu\tO\t_\nEsch\tB-LOC\tQ1\n\n", "lb", "Zu Esch", "O B-LOC"),
    "a language": ("a.tsv", "0\tMàiri\tB-PER\tgd\n1\tseinn\tO\tgd\n", "gd", "Màiri seinn", "B-PER O"),
    "CoNLL-2012": (
        "a.v4_gold_conll",
        "#begin document (bc/k); part 000\nbc/k 0 0 ភ្នំពេញ NNP (TOP(NP*) - - - S1 (GPE) (A0*) -\n"
        "bc/k 0 1 ជា VB *) be 1 1 S1 * (V*) -\n\n#end document\n",
        "km",
        "ភ្នំពេញ ជា",
        "B-GPE O",
    ),
    "MASSIVE": ("a.jsonl", MASSIVE.format("vekk meg [time : kl ni]"), "nb", "vekk meg kl ni", "O O B-time I-time"),
    "MASSIVE without blanks": ("a.jsonl", MASSIVE.format("a [t:9:30 da] b"), "az", "a 9:30 da b", "O B-t I-t O"),
    "MTOP": (
        "a.txt",
        "0\tIN:PLAY\t7:11:SL:GENRE\tspiele Jazz\tmusic\tde_XX\tx\t"
        '{"tokens": ["spiele", "Jazz"], "tokenSpans": [{"start": 0, "length": 6}, {"start": 7, "length": 4}]}\n',
        "de",
        "spiele Jazz",
        "O B-SL:GENRE",
    ),
    "lists as Python prints them": ("a.csv", PRINTED.format("ner_tags", "['Tá', 'Áine']"), "ga", "Tá Áine", "O B-PER"),
    "printed labels next to a sentence": ("a.csv", PRINTED.format("labels", "Tá Áine"), "ga", "Tá Áine", "O B-PER"),
    "zeros for O": ("a.conll", "Mair B-PER\nMôn B-LOC\ncanu 0\n", "cy", "Mair Môn canu", "B-PER B-LOC O"),
    "zeros next to tags without prefixes": ("a.conll", "Mair PER\ncanu 0\n", "cy", "Mair canu", "PER O"),
    "words to ignore": (
        "a.jsonl",
        '{"tokens": ["Ona", "čia", "a", "b", "c"], "labels": ["B-PER", "O", null, -1, "-"]}',
        "lt",
        "Ona čia a b c",
        "B-PER O _ _ _",
    ),
    "words to ignore, in a set without O": (
        "a.jsonl",
        '{"tokens": ["Ona", "a", "b"], "labels": ["B-PER", "-100", "I-PER"]}',
        "lt",
        "Ona a b",
        "B-PER _ B-PER",
    ),
}
# Data set: file, content, language; the rows that come of it.
TEXTS = {
    "XNLI": ("xnli.test.tsv", XNLI, "de-AT", ['"Ja', "Nein", "entailment", 3]),
    "XNLI in all languages": ("a.jsonl", XNLI_ALL, "de", ["Hund", "Tier", "0", 1]),
    "MultiNLI": ("multinli.jsonl", MULTINLI, "en", ["a", "b", "neutral", 2]),
    "MultiNLI, translated": ("train.de.tsv", TRANSLATED, "de", ["a", "b", "contradiction", 2]),
    "MultiATIS++": (*WORDS["MultiATIS++"][:3], ["to new york", "atis_flight", 2]),
    "Facebook": (*WORDS["Facebook"][:3], [SAID, "alarm/modify_alarm", 1]),
    "PAWS-X": ("dev.tsv", PAWS, "ko", ["a", "b", "1", 2]),
    "AfriSenti": ("hau.tsv", "ID\ttweet\tlabel\n1\tina kwana\tpositive\n", "ha", ["ina kwana", "positive", 2]),
    "SIB-200": ("a.tsv", "index_id\tcategory\ttext\n1\tscience\tx\n", "sw", ["x", "science", 2]),
    "SICK": ("SICK_test.txt", SICK, "en", ["a b", "c d", "NEUTRAL", 2]),
    "CDSC-E": ("a.tsv", "sentence_A\tsentence_B\tentailment_judgment\na\tb\tX\n", "pl", ["a", "b", "X", 2]),
    "KLUE-NLI": ("a.json", '[{"premise": "a", "hypothesis": "b", "gold_label": "x"}]', "ko", ["a", "b", "x", 1]),
    "KLUE's news": ("a.json", '[{"title": "a", "label": "x", "predefined_news_category": "x"}]', "ko", ["a", "x", 1]),
    "Taxi1500": ("a.tsv", "id\tclassification\tverse\n1\tFaith\ta\n", "zu", ["a", "Faith", 2]),
    "a table called text": ("a.txt", "text\tlabel\nZdravo\tpozdrav\n", "sl", ["Zdravo", "pozdrav", 2]),
    "Allegro": ("a.tsv", "text\trating\na\t5\n", "pl", ["a", "5", 2]),
    "QQP": ("a.tsv", "question1\tquestion2\tis_duplicate\na\tb\t1\n", "en", ["a", "b", "1", 2]),
    "QNLI": ("a.tsv", "index\tquestion\tsentence\tlabel\n0\ta\tb\tentailment\n", "en", ["a", "b", "entailment", 2]),
    "pairs of transformers": ("a.jsonl", '{"text": "a", "text_pair": "b", "label": "x"}', "mt", ["a", "b", "x", 1]),
    "pairs by number": ("a.csv", "text1,text2,label\na,b,x\n", "ga", ["a", "b", "x", 2]),
    "SST-2": ("train.tsv", "sentence\tlabel\na b\t 1\n", "en", ["a b", "1", 2]),
    "IMDB, joined": ("a.csv", "review,sentiment\nreview,sentiment\na,pos\n", "en", ["a", "pos", 3]),
    "IMDB": ("a.csv", "review,sentiment\na,pos\n", "en", ["a", "pos", 2]),
    "a label that is not a number": ("a.csv", "text,sentiment\na,nan\nb,pos\n", "is", ["b", "pos", 3]),
    "texts in capitals": ("a.csv", "Text,Label\ngut,pos\n", "de", ["gut", "pos", 2]),
    "pairs in capitals": ("a.csv", "Premise,Hypothesis,Label\na,b,neutral\n", "de", ["a", "b", "neutral", 2]),
    "sentiments in capitals": ("a.csv", "Review,SENTIMENT\ngut,pos\n", "de", ["gut", "pos", 2]),
    "sentiments": ("a.csv", "text,sentiment\na,pos\n", "en", ["a", "pos", 2]),
    "intents": ("a.jsonl", '{"text": "a", "intent": "x"}\n', "en", ["a", "x", 1]),
    "Amazon reviews": ("a.jsonl", REVIEWS, "de", ["Gut.", "5", 2]),
    "SNIPS": (*WORDS["SNIPS"][:3], ["add Sabrina  Salerno to my pop's list", "AddToPlaylist", 1]),
}  # fmt: skip


def read(name, content, language, kind, folder, **options):
    (folder / name).write_text(content, encoding="utf-8")
    return read_examples(f"{language}={folder / name}", kind, **options)


@pytest.mark.parametrize("name", WORDS)
def test_labelled_words(tmp_path, name):
    *file, words, labels = WORDS[name]
    row = read(*file, "token", tmp_path).rows[0]
    assert (" ".join(row["tokens"]), " ".join(row["labels"])) == (words, labels)


@pytest.mark.parametrize("name", TEXTS)
def test_labelled_texts(tmp_path, name):
    *file, expected = TEXTS[name]
    assert [list(row.values()) for row in read(*file, "sequence", tmp_path).rows] == [expected]


def test_columns_of_the_hub_and_of_the_user(tmp_path, monkeypatch):
    wikiann = Features({"tokens": List(Value("string")), "ner_tags": List(ClassLabel(names=["O", "B-PER"]))})
    xnli = Features({name: Value("string") for name in ("premise", "hypothesis")} | {"label": ClassLabel(names=["x"])})
    for kind, features, row, expected in (
        ("token", wikiann, {"tokens": ["a", "b"], "ner_tags": [1, 0]}, [["a", "b"], ["B-PER", "O"], 1]),
        ("sequence", xnli, {"premise": "a", "hypothesis": "b", "label": 0}, ["a", "b", "x", 1]),
    ):
        requests, hub = [], Dataset.from_list([row], features=features)
        monkeypatch.setattr(labelled_files, "load_hub", lambda *given, of=requests, hub=hub: of.append(given) or hub)
        found = read_examples("de=owner/name:de", kind, split="test")
        assert list(found.rows[0].values()) == expected and found.place(0) == "owner/name:de, row 1"
        assert requests == [("owner/name:de", "test", None)]
    named = {"text_columns": ["words"], "label_column": "pos"}
    found = read("a.csv", "words;pos\nthe cat;DET NOUN\n", "en", "token", tmp_path, **named)
    assert found.rows["labels"][:] == [["DET", "NOUN"]]
    named = {"text_columns": ["Utterance"], "label_column": "Class"}
    found = read("b.csv", "ID,id,Utterance,Class\n1,2,gut,pos\n", "de", "sequence", tmp_path, **named)
    assert found.rows["label"][:] == ["pos"]
    found = read("c.jsonl", NUMBERS, "et", "token", tmp_path, label_names=["O", "B-LOC", "I-LOC"])
    assert found.rows["labels"][:] == [["B-LOC", "O"]]


def test_texts_that_are_labelled_by_their_language_are_all_read(tmp_path):
    names = {"text_columns": ["review_body"], "label_column": "language"}
    assert read("a.jsonl", REVIEWS, "en", "sequence", tmp_path, **names).rows["label"][:] == ["fr", "de"]


def test_texts_with_marks_of_tools_are_told(tmp_path, caplog):
    read("a.csv", "text,label\nIt&apos;s good,pos\nbad,neg\n", "is", "sequence", tmp_path)
    assert "a.csv: the text is escaped, as '&apos;' shows" in caplog.text


def test_labels_that_are_one_label_or_several_are_told(tmp_path, caplog):
    table = "text,label\na,Joy\nb,joy\nc,anger\nd,joy|anger\ne,x|y\nf,anger / joy\ng,[none]\n"
    assert len(read("a.csv", table, "is", "sequence", tmp_path).rows) == 7
    said = [record.getMessage() for record in caplog.records if "class of its own" in record.getMessage()]
    assert len(said) == 3 and "'joy|anger' is a class of its own, next to Joy, [none], anger," in said[2]
    caplog.clear()
    table = "Bakı B-LOC\nvar o\n\nGəncə b-loc\nvar O\n\nZiya B-PER/LOC\nvə B-PER\n"
    words = read("a.conll", table, "az", "token", tmp_path)
    assert words.label_names == {"B-LOC", "B-loc", "B-PER", "B-PER/LOC", "O"}
    assert caplog.text.count("is a class of its own") == 2 and "'PER/LOC' is a class of its own" in caplog.text


def test_a_file_of_several_partitions_gives_the_one_asked_for(tmp_path):
    rows = [{"partition": part, "utt": part, "annot_utt": part, "intent": "x"} for part in ("train", "dev", "test")]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert read("de-DE.jsonl", text, "de", "token", tmp_path, split="test").rows["tokens"][:] == [["test"]]
    # The files of a pattern hold several partitions too, and MASSIVE calls the validation set `dev`.
    found = read_examples(f"de={tmp_path}/de-*.jsonl", "token", split="validation")
    assert found.rows["tokens"][:] == [["dev"]]
    with pytest.raises(InputError, match="split=dve: choose one of train, dev, test; did you mean 'dev'"):
        read_examples(f"de={tmp_path}/de-DE.jsonl", "token", split="dve")
    table = "text,label,Split,lang_code\na,x,train,deu\nb,y,test,deu\nc,y,test,nld\n"
    assert read("a.csv", table, "de", "sequence", tmp_path, split="test").rows["text_a"][:] == ["b"]
    sick = "sentence_A\tsentence_B\tentailment_label\tSemEval_set\na\tb\tX\tTRAIN\nc\td\tX\tTRIAL\ne\tf\tY\tTEST\n"
    for split, text in (("train", "a"), ("validation", "c"), ("test", "e")):
        assert read("SICK.txt", sick, "gl", "sequence", tmp_path, split=split).rows["text_a"][:] == [text]
    val = read("v.csv", table.replace("c,y,test,nld", "d,x,val,deu"), "de", "sequence", tmp_path, split="validation")
    assert val.rows["text_a"][:] == ["d"]
    # A file of one partition is read whole, whatever the split.
    alone = read("de.jsonl", json.dumps(rows[1]) + "\n", "de", "token", tmp_path)
    assert alone.rows["tokens"][:] == [["dev"]]


def test_several_files_and_rows_left_out(tmp_path, caplog):
    for intent in ("PlayMusic", "AddToPlaylist"):
        (tmp_path / f"train_{intent}.json").write_text(json.dumps({intent: [{"data": SNIPS}] * 2}))
    found = read_examples(f"en={tmp_path}/train_*.json", "sequence")
    assert found.rows["label"][:] == ["AddToPlaylist"] * 2 + ["PlayMusic"] * 2
    assert found.rows["line"][:] == [1, 2, 3, 4] and found.place(2).endswith("train_*.json, example 3")
    with caplog.at_level(logging.INFO):
        read(*TEXTS["XNLI"][:3], "sequence", tmp_path, max_examples=1)
        read(*WORDS["CoNLL-2003, IOB1"][:3], "token", tmp_path)
    assert "skipped examples (1 in ar)" in caplog.text and "'I-ORG' becomes 'B-ORG'" in caplog.text


def test_what_cannot_be_read_is_refused(tmp_path):
    check(
        [
            ("column 'text_a' holds dict, not text", read, "a.jsonl", XNLI_ALL, "fr", "sequence"),
            ("it has no examples in fr; there are 1 in ar, 1 in de", read, "a.tsv", XNLI, "fr", "sequence"),
            ("3 words in 'tokens', 2 labels", read, "a.tsv", ATIS.replace("O ", ""), "en", "token"),
            ("are numbers .*another column", read, "a.conll", "Er\tO\t0.9\nging\tO\t0.8\n", "de", "token"),
            ("no column 'tokens'", read, "a.conll", ONTONOTES, "fo", "token"),
            ("'Hon/PRON' is not one word or one label", read, "a.txt", "Hon/PRON sefur/VERB\n" * 2, "is", "token"),
            ("'Hon_P' is not one word or one label", read, "a.txt", "Hon_P ser_V ein_D\n", "is", "token"),
            ("'O B-x' is not one word or one label", read, "a.txt", "Hon ser\tO B-x\n", "is", "token"),
            ("no column 'tokens'", read, "a.txt", LABEL_FIRST, "is", "token"),
            ("no blank line parts its 501 lines", read, "fao", "hús\thúsið\tN;NOM;SG;DEF\n" * 501, "fo", "token"),
            ("first column labels spans", read, "a.conll", "B-PER Er\nO ging\n", "de", "token"),
            ("'x'.* joins several", read, "a.tsv", "text\tlabel\na\t['x']\n", "en", "sequence"),
            ("'1,5' joins several", read, "a.tsv", "text\tlabel\na\t1,5\n", "en", "sequence"),
            ("numbers .* without names.*--label_names", read, "a.jsonl", NUMBERS, "et", "token"),
            ("the label 1, but label_names", partial(read, label_names=["O"]), "a.jsonl", NUMBERS, "et", "token"),
            ("'B-PER,O' joins several labels", read, "a.conll", "Ana B-PER,O\nje O,O\n", "sl", "token"),
            (r"'B-ORG\|B-LOC' joins several", read, "a.conll", "Bakı B-ORG|B-LOC\nvə I-ORG\nvar O\n", "az", "token"),
            ("the label 'X' marks no span", read, "a.conll", "Ana B-PER\n##lija X\nje O\n", "sl", "token"),
            (r"holds \"good \(0.9\)\"", read, "b.csv", "text,label\nAna,good (0.9)\n", "sl", "sequence"),
            ('holds "B-PER:0.97"', read, "a.conll", "Ana B-PER:0.97\nje O:0.99\n", "sl", "token"),
            ("line 2: spans are labelled by", read, "a.csv", 'text,label\nAna,"[[0, 3]]"\n', "sl", "sequence"),
            ("line 1: spans are labelled by character offsets.*Studio", read, "a.jsonl", DOCCANO, "sl", "token"),
            ("spans are labelled by character offsets.*spaCy", read, "b.jsonl", PRODIGY, "sl", "token"),
            ("no column says where sentences end", read, "a.csv", "word,tag\nAna,B-PER\nje,O\n", "sl", "token"),
            ("each row holds one word. Call the columns sentence", read, "f.jsonl", ONE_WORD, "sl", "token"),
            ("holds .* no list of Python", read, "c.csv", PRINTED.format("labels", "['Tá' 'Áine']"), "ga", "token"),
            ("the columns are labels, 1, 2, 3", read, "d.conll", "bn/0 Ana (1)\n" + "bn/0 je -\n" * 9, "sl", "token"),
            ("the columns are labels, 1, 2, 3", read, "e.conll", NUMBERED, "bg", "token"),
            ("2 columns are called 'text'", read, "a.csv", "text,Text,Label\ngut,gut,pos\n", "de", "sequence"),
        ],
        tmp_path,
    )
