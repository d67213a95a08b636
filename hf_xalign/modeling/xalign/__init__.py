"""The PEFT method `XALIGN`: adapters inside the layers and a module on top of the encoder."""

import warnings

# PEFT 0.21 reads this attribute of every model.
warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
