"""Cached word and sentence vectors of a frozen encoder."""
