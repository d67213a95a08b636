import os
import subprocess
import sys
import time

import psutil
import pytest

from hf_xalign.cluster import run_tasks


@pytest.mark.parametrize("workers", [1, 3, 20])
def test_results_are_in_order(workers):
    def square(number):
        time.sleep(0.01 * (number % 3))
        return f"{number**2} {os.getpid()}"

    results = [result.split() for result in run_tasks(square, 12, workers=workers)]
    assert [int(square) for square, _ in results] == [number**2 for number in range(12)]
    assert (str(os.getpid()) in {process for _, process in results}) == (workers == 1)
    assert run_tasks(square, 0, workers=workers) == []


def test_an_error_ends_the_tasks(tmp_path):
    def fail_third(number):
        (tmp_path / str(number)).touch()
        if number == 2:
            raise ValueError("the third")
        time.sleep(0.05)
        return ""

    with pytest.raises(ValueError, match="the third"):
        run_tasks(fail_third, 200, workers=2)
    assert len([*tmp_path.iterdir()]) < 100


SLEEP = r"""
import os, sys, time
from hf_xalign.cluster import run_tasks

def sleep(number):
    os.write(1, b"%d\n" % number)  # at once, because three processes write
    time.sleep(60)

run_tasks(sleep, 4, workers=int(sys.argv[1]))
"""


def test_no_process_outlives_a_killed_one():
    run = subprocess.Popen([sys.executable, "-c", SLEEP, "3"], stdout=subprocess.PIPE, text=True)
    assert {run.stdout.readline().strip() for _ in range(3)} == {"0", "1", "2"}
    processes = psutil.Process(run.pid).children(recursive=True)
    assert len(processes) >= 3
    run.kill()
    run.wait()
    _, left = psutil.wait_procs(processes, timeout=5)
    assert not left
