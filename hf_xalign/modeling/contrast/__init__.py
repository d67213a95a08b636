"""Momentum contrast (MoCo): key encoder, queue of keys and sentence head."""
