"""Caches of a frozen encoder's word vectors."""
