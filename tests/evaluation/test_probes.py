"""Frozen probes."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from scipy.optimize import minimize
from support.tiny import make_encoder, make_tokenizer

from hf_xalign.cli.main import main
from hf_xalign.errors import InputError
from hf_xalign.evaluation.probes import probe_encoder
from hf_xalign.statistics.softmax_regression import fit_softmax
from hf_xalign.trainers.base.probes import read_probes


def test_a_probe_is_the_minimum_of_its_loss():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(60, 5)), generator.integers(0, 3, 60)
    rows = (x - x.mean(0)) / (x.std(0, ddof=1) + 1e-6)

    def loss(flat):
        weight, bias = flat[:15].reshape(3, 5), flat[15:]
        scores = rows @ weight.T + bias
        return np.mean(np.log(np.exp(scores).sum(1)) - scores[range(60), y]) + 0.01 * np.square(weight).sum()

    best = minimize(loss, np.zeros(18)).x
    deviation = x.std(0, ddof=1) + 1e-6
    weight, bias = fit_softmax(torch.from_numpy(x), torch.from_numpy(y), 3, weight_decay=0.01)
    np.testing.assert_allclose(weight.numpy() * deviation, best[:15].reshape(3, 5), atol=1e-3)
    scores = (torch.from_numpy(x) @ weight.T + bias).numpy()
    wanted = rows @ best[:15].reshape(3, 5).T + best[15:]
    # Softmax does not change if a number is added to all scores of a row.
    np.testing.assert_allclose(scores - scores.mean(1)[:, None], wanted - wanted.mean(1)[:, None], atol=1e-3)


def test_example_scores_of_a_probe_add_up_to_its_score():
    model, tokenizer = make_encoder(), make_tokenizer()
    words = [["the", "cat", "sees", "the", "dog"], ["the", "big", "house"], ["dog", "sees"]]
    train = Dataset.from_dict({"tokens": words, "labels": [["O", "A", "O", "O", "B"], ["O", "O", "A"], ["A", "O"]]})
    test = Dataset.from_dict({"tokens": words, "labels": [["O", "A", "O", "O", "A"], ["O", "B", "C"], ["B", "O"]]})
    found = probe_encoder(model, tokenizer, ("en", train), {"de": test})["de"]
    # Learned by heart: O A O O B | O O A | A O. Right: 4, 1 and 1 of 5, 3 and 2 words.
    assert (found["accuracy"].columns["correct"].tolist(), found["accuracy"].score()) == ([4, 1, 1], 0.6)
    gold, predicted = found["macro_f1"].columns["gold"].tolist(), found["macro_f1"].columns["predicted"].tolist()
    assert gold == [[2, 0, 0], [0, 1, 1], [0, 1, 0]] and predicted == [[1, 1, 0], [1, 0, 0], [1, 0, 0]]
    # A: 1 right, 2 there, 3 found. B: 0, 2, 1. C: 0, 1, 0.
    assert found["macro_f1"].score() == pytest.approx((2 / 5 + 0 + 0) / 3, rel=1e-12)
    alone = train.map(lambda row: {"labels": ["A"] * len(row["labels"])})
    with pytest.raises(InputError, match="at least two labels; there is only A"):
        probe_encoder(model, tokenizer, ("en", alone), {"de": test})


def test_labels_of_another_set_are_told(tmp_path, caplog):
    for name, tags in (("en", "NOUN VERB O"), ("de", "NN VERB O"), ("fr", "NOUN VERB O")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"tokens": ["a", "b", "c"], "labels": tags.split()}))
    read_probes(["pos", *(f"{code}={tmp_path}/{code}.jsonl" for code in ("en", "de", "fr"))])
    assert caplog.messages == [f"{tmp_path}/de.jsonl: labels that {tmp_path}/en.jsonl lacks are wrong: NN"]


def test_words_and_texts_are_probed(tmp_path, capsys):
    model, tokenizer = make_encoder(), make_tokenizer()
    words = [["the", "cat", "sees", "the", "dog"], ["the", "big", "house"]] * 6
    labels = [["D", "N", "V", "D", "N"], ["D", "A", "N"]] * 6
    rows = Dataset.from_dict({"tokens": words, "labels": labels})
    assert probe_encoder(model, tokenizer, ("en", rows), {"en": rows})["en"]["accuracy"].score() == 1.0
    # The same spans in two schemes, and a word without a label.
    spans = (
        [["O", "B-a", "I-a", "O", "B-b"], ["O", "B-a", "I-a"]] * 6,
        [["O", "B-a", "E-a", "O", "S-b"], ["O", "_", "_"]] * 6,
    )
    bio, bioes = (Dataset.from_dict({"tokens": words, "labels": own}) for own in spans)
    found = probe_encoder(model, tokenizer, ("en", bio), {"en": bio, "de": bioes})
    assert found["en"]["accuracy"].score() == found["de"]["accuracy"].score() == 1.0
    assert found["de"]["accuracy"].columns["gold"].tolist() == [5, 1] * 6
    texts = [{"text": " ".join(one), "label": str(len(one))} for one in words]
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "words.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows.to_list()))
    # As AfriSenti has them.
    (tmp_path / "texts.tsv").write_text("tweet\tlabel\n" + "".join("{text}\t{label}\n".format(**one) for one in texts))
    names = {"words": "words.jsonl", "texts": "texts.tsv"}
    probes = [[name, *(f"{code}={tmp_path / file}" for code in ("en", "de"))] for name, file in names.items()]
    main(["evaluate", str(tmp_path / "model"), *(word for probe in probes for word in ("--probe", *probe))])
    table = capsys.readouterr().out
    assert table.count("de  ") == 2 and table.count("100.0") == 2 and "retrieval" not in table
    main(["evaluate", str(tmp_path / "model"), "--base", str(tmp_path / "model"), "--examples", str(tmp_path / "kept"),
          *(word for probe in probes for word in ("--probe", *probe))])  # fmt: skip
    systems = [str(tmp_path / "kept" / "words" / stage) for stage in ("before", "after")]
    main(["compare", *systems, "--permutations", "50", "--resamples", "50"])
    assert "probe words, accuracy, trained on en" in capsys.readouterr().out
