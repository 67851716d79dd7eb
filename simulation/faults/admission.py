"""Faults of assignment at admission: late objects, a ring that switches it, keys and configurations that are lost."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

from devcluster.embedded.status import Refusal
from sharder.admission.settings import DEFAULT_SECRET
from sharder.admission.webhook_configuration import configuration_name
from simulation.faults.strike import Strike, fault
from simulation.scale import RING

_LONGEST_S: Final = 33.0
"""An API server gives a create up after 34 s."""
_CONFIGURATION_PATH: Final = (
    f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{configuration_name(RING)}"
)
_SECRETS_PATH: Final = "/api/v1/namespaces/default/secrets"
_SECRET_PATH: Final = f"{_SECRETS_PATH}/{DEFAULT_SECRET}"


@fault
def admission_late(strike: Strike) -> None:
    """Objects are stored long after a sharder named their owner: other webhooks take their time."""
    strike.note("admission_late")
    late_admission(strike, for_s=strike.span_s())


def late_admission(strike: Strike, *, for_s: float) -> None:
    """Have what users create in *for_s* be stored late."""
    strike.fleet.admission.longest_s = _LONGEST_S
    strike.heal_in(for_s, partial(setattr, strike.fleet.admission, "longest_s", 0.0))


@fault
def admission_switched(strike: Strike) -> None:
    """The ring asks for assignment at admission, or no longer does; perhaps no sharder serves it."""
    usual = strike.fleet.scale.admits
    strike.note(f"assignAtAdmission: {not usual}")
    strike.edit_ring({"assignAtAdmission": not usual})
    strike.heal_in(strike.span_s(), partial(strike.edit_ring, {"assignAtAdmission": usual}))


@fault
def webhook_lost(strike: Strike) -> None:
    """The webhook's keys or its configuration are deleted or spoiled by hand, or cannot be read or written a while.

    A sharder may begin meanwhile.
    """
    what = strike.rng.choice(("configuration", "keys", "spoiled keys", "rights"))
    strike.note(f"webhook_lost {what}")
    match what:
        case "configuration":
            with suppress(Refusal):
                strike.request("DELETE", _CONFIGURATION_PATH)
        case "keys":
            with suppress(Refusal):
                strike.request("DELETE", _SECRET_PATH)
        case "spoiled keys":
            strike.merge(_SECRET_PATH, {"data": {"tls.crt": "bm9uc2Vuc2U="}})
        case _:
            path = strike.rng.choice((_CONFIGURATION_PATH, _SECRETS_PATH, "/api/v1/namespaces?"))
            strike.revoke(strike.rng.choice(("read", "write")), path, for_s=strike.span_s() + 20)
            if strike.rng.random() < 0.5 and (sharder := strike.process("sharder")) is not None:
                sharder.kill()
