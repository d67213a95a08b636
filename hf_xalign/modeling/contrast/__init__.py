"""Momentum contrast: the key encoder, the queue of keys and the sentence head."""
