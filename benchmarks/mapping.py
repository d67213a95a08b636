"""Time anchors, RCSLS and lexicon induction, each against a baseline in the same run.

    python benchmarks/mapping.py            # half an hour on 2 cores
    python benchmarks/mapping.py --trial    # small sizes, to see that it runs

Runs `mapping_anchors.py`, `mapping_rcsls.py` and `mapping_bli.py` one after the other, each in a process of its own,
so that none has the memory of another; their heads say what is compared. scikit-learn and faiss take part where they
are installed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

TRIAL = {
    "mapping_anchors.py": ["--max_sentences", "100", "--repeats", "1", "--sentences_per_word", "5"],
    "mapping_rcsls.py": ["--candidates", "2000", "--pairs", "500", "--epochs", "3", "--repeats", "1"],
    "mapping_bli.py": ["--targets", "5000", "--queries", "300", "--repeats", "1"],
}


def main() -> None:
    """Run the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trial", action="store_true", help="small sizes")
    trial = parser.parse_args().trial
    for name, options in TRIAL.items():
        print(f"\n## {name}\n", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(name)), *(options if trial else [])]
        subprocess.run(command, check=True, env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"})


if __name__ == "__main__":
    main()
