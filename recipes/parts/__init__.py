"""What the recipe scripts share."""
