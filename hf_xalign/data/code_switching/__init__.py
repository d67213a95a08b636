"""Code-switched training data: whole examples, and words replaced through a dictionary."""
