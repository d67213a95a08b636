"""The PEFT method `XALIGN`: adapters in the layers and a module on top."""

import warnings

# PEFT 0.21 asks each model for it.
warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
