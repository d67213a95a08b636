"""The command line `hf-xalign`: one module for each command."""
