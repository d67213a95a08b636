"""Base classes and settings that the trainers share."""
