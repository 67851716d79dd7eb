"""Bytes that atheris makes, guided by coverage, into everything that reads JSON of tenants: `make fuzz`.

atheris is an extra of its own (`pip install -e .[fuzz]`): without it this says so and ends well. msgspec is C and not
measured, so its guidance is weak. An undeclared error ends the run with exit code 77 and
the bytes that brought it about.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
from pathlib import Path

SECONDS = 120
META = (
    b'"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{"shard.ringleader.dev/r":"a-1"},'
    b'"annotations":{"turn.ringleader.dev/r":"5"},"managedFields":[{"fieldsV1":{"f:spec":{}}}],"ownerReferences":'
    b'[{"apiVersion":"example.com/v1","kind":"Website","name":"b","uid":"v","controller":true}]}'
)
OBJECT = b'{"apiVersion":"v1","kind":"ConfigMap",%b,"data":{"a":"b"}}' % META
SEEDS = (
    OBJECT,
    b'{"metadata":{"resourceVersion":"9","continue":"t"},"items":[%b,%b]}' % (OBJECT, OBJECT),
    b'{"type":"MODIFIED","object":%b}' % OBJECT,
    b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}}',
    b'{%b,"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"renewTime":"2026-01-01T00:00:00.000000Z"}}'
    % META,
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE",'
    b'"resource":{"group":"","version":"v1","resource":"configmaps"},"namespace":"n","object":%b}}' % OBJECT,
)
"""Random bytes are no JSON: what is changed at random are documents that the readers take."""


def read_everything(raw: bytes) -> None:
    from kubeio.decoding import UNREADABLE, object_from
    from kubeio.errors import ApiError, Unreachable
    from kubeio.leases.lease import decode_lease
    from kubeio.rest.answers import Unexpected, decode_page
    from kubeio.watches.storage import without_managed_fields
    from kubeio.watches.watch_events import decode_line
    from sharder.admission.review import BadReview, read_review
    from sharder.membership.shards import read_lease
    from sharder.planning.planner import Subject, Terms, plan
    from tests.sharder.pure.contexts import KINDS, SPEC
    from tests.sharder.pure.views import CONFIGMAPS, make_view

    with contextlib.suppress(Unexpected):
        decode_page(raw)
    with contextlib.suppress(ApiError, Unreachable):
        decode_line(raw, "WATCH")
    with contextlib.suppress(BadReview):
        read_review(raw)
    with contextlib.suppress(*UNREADABLE):
        found = object_from(raw)
        without_managed_fields(found.raw)
        subject = Subject(found.meta, KINDS.role(CONFIGMAPS, found.meta))
        plan(subject, view=make_view({}, {}), terms=Terms(), keys=SPEC.keys)
        read_lease(decode_lease(raw), keys=SPEC.keys, max_duration_s=60)


def main() -> int:
    if importlib.util.find_spec("atheris") is None:
        print("fuzz: atheris is not installed (pip install -e .[fuzz]): coverage-guided part left out")
        return 0
    import atheris

    with atheris.instrument_imports(include=["kubeio", "sharder"]):
        for seed in SEEDS:
            read_everything(seed)
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS):
            Path(corpus, str(number)).write_bytes(seed)
        atheris.Setup([sys.argv[0], f"-max_total_time={SECONDS}", *sys.argv[1:], corpus], read_everything)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
