"""Confidence intervals, significance tests and comparisons of systems."""
