"""Steps of the mapping recipe."""
