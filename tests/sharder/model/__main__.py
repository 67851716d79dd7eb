"""`make model`: explores every setting completely and prints the table that docs/protocol.md shows.

Without arguments all settings, else those whose names contain one of them. `--write` puts the rows into the document.
Exit 1: something breaks; its shortest run is printed. Takes one core for some ten minutes, and about 1 KB per world.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.sharder.model.document import put_rows, row_of
from tests.sharder.model.exploration import explore
from tests.sharder.model.settings import SETTINGS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of settings' names; all if none is given")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/protocol.md")
    parser.add_argument("--at-most", type=int, default=0, help="stop each after so many worlds (0: none)")
    asked = parser.parse_args()
    rows, broken = {}, False
    for name, setting in SETTINGS.items():
        if asked.names and not any(part in name for part in asked.names):
            continue
        began = time.process_time()
        explored = explore(setting, at_most=asked.at_most)
        rows[name] = row_of(name, explored, took_s=time.process_time() - began)
        print(rows[name], flush=True)
        if explored.broken is not None:
            broken = True
            print(explored.tell(), flush=True)
    if asked.write:
        put_rows(rows)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
