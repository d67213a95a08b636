"""Rows, masks and dictionary entries for the pre-training objectives."""
