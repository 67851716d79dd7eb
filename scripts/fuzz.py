"""Bytes that atheris makes, guided by coverage, into everything that reads JSON of tenants: `make fuzz`.

atheris is an extra of its own (`pip install -e .[fuzz]`): without it this says so and ends well. msgspec is C and not
measured, so its guidance is weak. An undeclared error ends the run with exit code 77 and
the bytes that brought it about.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys

SECONDS = 120


def read_everything(raw: bytes) -> None:
    from kubeio.decoding import UNREADABLE, object_from
    from kubeio.errors import ApiError, Unreachable
    from kubeio.leases.lease import decode_lease
    from kubeio.rest.answers import Unexpected, decode_page
    from kubeio.watches.events import decode_line
    from kubeio.watches.forms import without_managed_fields
    from sharder.admission.review import BadReview, read_review
    from sharder.membership.lives import read_lease
    from tests.sharder.pure.story import make_spec

    with contextlib.suppress(Unexpected):
        decode_page(raw)
    with contextlib.suppress(ApiError, Unreachable):
        decode_line(raw, "WATCH")
    with contextlib.suppress(BadReview):
        read_review(raw)
    with contextlib.suppress(*UNREADABLE):
        without_managed_fields(object_from(raw).raw)
        read_lease(decode_lease(raw), keys=make_spec().keys, max_duration_s=60)


def main() -> int:
    if importlib.util.find_spec("atheris") is None:
        print("fuzz: atheris is not installed (pip install -e .[fuzz]): coverage-guided part left out")
        return 0
    import atheris

    with atheris.instrument_imports(include=["kubeio", "sharder"]):
        read_everything(b"{}")
    atheris.Setup([sys.argv[0], f"-max_total_time={SECONDS}", *sys.argv[1:]], read_everything)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
