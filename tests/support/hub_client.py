"""A process with the real client of the Hub, which a test tells what to do.

The client reads its settings when it is imported, and the tests' own process is offline. The process reads lines of
JSON: `code` to run with the names `given` and those of earlier code, which leaves its result in `found`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RUN = """
import json, sys
answers, sys.stdout = sys.stdout, sys.stderr
names = {}
for line in sys.stdin:
    order = json.loads(line)
    names.update(order["given"], found=None)
    try:
        exec(order["code"], names)
        answer = {"found": names["found"], "error": None}
    except Exception as error:
        answer = {"found": None, "error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), file=answers, flush=True)
"""


class ClientError(Exception):
    """What the code raised, as `Type: message`."""


class HubClient:
    """Client process, started without waiting for it; a context manager. Its standard error is in `log`."""

    def __init__(self, environment: dict[str, str], log: Path):
        self.log = log
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            cwd=log.parent,  # outside the checkout, which would hide the installed package
            env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def start(self, code: str, **given: Any) -> None:
        """Send code without waiting for its end; `result` waits."""
        self.process.stdin.write(json.dumps({"code": code, "given": given}) + "\n")
        self.process.stdin.flush()

    def result(self) -> Any:
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"the process ended: {self.log.read_text()[-2000:]}"}
        if answer["error"]:
            raise ClientError(answer["error"])
        return answer["found"]

    def run(self, code: str, **given: Any) -> Any:
        """Run code, and return what it leaves in `found`, of JSON's types; raise ClientError where it raised."""
        self.start(code, **given)
        return self.result()
