"""Helpers of the tests: tiny models and corpora, stand-ins for services, launched runs, and comparisons."""
