"""Code-switched pairs against a loop."""

from support.examples import nli

from hf_xalign.data.code_switching import code_switch_pairs

NLI = {"first": "premise", "second": "hypothesis"}


def test_nli_against_a_loop():
    german, english = nli("de"), nli("en")
    wanted = []
    for row, (x, en) in enumerate(zip(german, english, strict=True)):
        wanted += [{**x, "hypothesis": en["hypothesis"], "group": row}, {**x, "premise": en["premise"], "group": row}]
    found = code_switch_pairs(german, english, **NLI)
    assert found.to_list() == wanted
    assert code_switch_pairs(german, english.select([3, 5, 0, 2, 1, 4]), id_column="number", **NLI).to_list() == wanted
    assert found.features["label"] == german.features["label"]
