"""Rows, masks and dictionary entries of the pre-training objectives."""
