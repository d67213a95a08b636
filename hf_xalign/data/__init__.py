"""Parallel text, its words, and their encoding."""
