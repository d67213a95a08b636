"""Readers of files: rows as `(row, record)`, a number from 1 and columns (None for an empty line), or InputErrors."""
