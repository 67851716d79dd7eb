"""`python -m devcluster.nodes`: whether real nodes can run here. One line names what is missing, exit code 2."""

from __future__ import annotations

import sys

from devcluster.nodes import RequirementsMissing, check_available_programs, check_machine
from devcluster.real.binaries import BinariesMissing


def main() -> int:
    try:
        check_machine()
        check_available_programs()
    except (RequirementsMissing, BinariesMissing) as missing:
        print(f"nodes: {missing}", file=sys.stderr)  # noqa: T201 - a command
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
