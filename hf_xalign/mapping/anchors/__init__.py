"""Anchors: mean contextual vectors of a vocabulary."""
