"""Parts that the recipe scripts share.

Importing this package chooses the number of threads and the way they wait. Torch and NumPy read both when they are
first imported, so a script imports this package before them.
"""

import os

from hf_xalign.recipes.parts.threads import use_all_cores

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("WANDB_PROJECT", "hf_xalign")
use_all_cores()
