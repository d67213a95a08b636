"""The PEFT method `XALIGN`: adapters in the layers and a module on top."""
