#!/bin/sh
# trackio 0.43.0: the name of a project is the name of its file, without blanks and combining marks. So the projects
# "भाषा" (language) and "भूषा" (dress) are one, as are "de bn" and "debn": their runs stand in one table, and nothing says so.
# Here: nothing depends on it. Give projects names that differ in letters or digits.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet trackio==0.43.0
cd "$folder"
TRACKIO_DIR="$folder/store" "$folder/venv/bin/python" - <<'PYTHON' 2> log
import trackio
from trackio.sqlite_storage import SQLiteStorage

for project, run in (("भाषा", "a"), ("भूषा", "b"), ("de bn", "c"), ("debn", "d")):
    trackio.init(project=project, name=run, embed=False)
    trackio.log({"loss": 1.0})
    trackio.finish()
found = sorted(sorted(SQLiteStorage.get_runs(name)) for name in SQLiteStorage.get_projects())
print("runs by project:", found)
# Seen: runs by project: [['a', 'b'], ['c', 'd']]
assert found == [["a", "b"], ["c", "d"]]
PYTHON
