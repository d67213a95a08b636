"""Scripts to run, one for each method."""
