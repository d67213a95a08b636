"""What a person runs: one script a method."""
