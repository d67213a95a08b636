"""Clean noisy sentence pairs: remove bad pairs, duplicates and text of test sets, and write shards and a report."""
