"""Rows, dictionary entries and vocabularies for pre-training."""
