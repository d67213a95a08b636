"""Exact nearest neighbours on tensors: cosine, CSLS and ranks."""
