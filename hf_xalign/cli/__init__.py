"""The command line `hf-xalign`: one file a command, nothing heavy imported before a command runs."""
