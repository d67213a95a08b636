"""Code-switched training data of whole examples."""
