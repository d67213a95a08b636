"""Padded batches: collators, samplers and the token positions of words."""
