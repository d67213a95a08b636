"""Derived languages: transliteration, word order and vocabularies made from a natural language."""
