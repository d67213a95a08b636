"""Text tables, and the score table of a record."""

from hf_xalign.tables import format_table, width


def test_width():
    assert [width(text) for text in ("abc", "日本", "é", "e\u0301", "খু", "a\u200db")] == [3, 4, 1, 1, 1, 2]


def test_scores_of_the_untrained_module_and_costs():
    run = {"saved_to": None, "trainable": {"parameters": 147456, "share": 147456 / 117_000_000}}
    run["scores"] = {
        "before": {"de": {"retrieval_mean": 0.7812, "pool": 3456}},
        "untrained": {"de": {"retrieval_mean": 0.012, "pool": 3456, "bli_p@1": 0.013, "bli_p@5": 0.2}},
        "after": {
            "de": {"retrieval_mean": 0.8661, "retrieval_words": 0.87, "bli_p@1": 0.02, "my_one": 0, "my_two": 0.1},
            "bn": {"retrieval_mean": 0.5},
        },
    }
    assert format_table(run).splitlines() == [
        "language  metric          before  untrained  after  change",
        "----------------------------------------------------------",
        "de        retrieval_mean    78.1        1.2   86.6    +8.5",
        "de        bli_p@1              -        1.3    2.0       -",
        "de        my_one               -          -    0.0       -",
        "de        my_two               -          -   10.0       -",
        "bn        retrieval_mean       -          -   50.0       -",
        "",
        "trainable parameters: 147,456 (0.13% of the encoder)",
    ]
