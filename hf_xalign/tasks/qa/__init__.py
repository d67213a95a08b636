"""Extractive question answering: reading, features, answers and scores."""
