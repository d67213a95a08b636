"""Readers of files yield `(row, record)`: the number of a row, from 1, and its columns (None for an empty line).

A reader raises an InputError that names file and row for every content that it cannot read.
"""
