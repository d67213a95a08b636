"""Vectors and the scores computed from them; nothing else in the library computes a score."""
