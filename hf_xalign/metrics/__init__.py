"""`evaluate` modules that ship with the package."""
