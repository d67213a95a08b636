"""Base classes and settings of all trainers, and what every run has: record, checkpoints, trackers, pushes."""
