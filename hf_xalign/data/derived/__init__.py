"""Derived languages: transliteration and word order of a natural language."""
