"""Parallel text, word links, and the batches made from them."""
