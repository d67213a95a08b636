"""Clean noisy sentence pairs: rules for single pairs, duplicates, text of test sets, shards and a report."""
