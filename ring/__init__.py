"""The consistent-hash ring: owners of keys, and movement when members come and go.

Pure: no I/O, no clock, no randomness, nothing of Kubernetes except the form of an object's key. Replicas never
compute an owner. The algorithm is frozen as v1 and described in docs/ring.md well enough to write it in another
language.
"""

from typing import Final

from ring.errors import EmptyRingError, InvalidRing, RingError
from ring.hashing import HASH_SPACE, hash_key, hash_keys
from ring.key import object_key
from ring.movement import Movement, Transition, movement
from ring.ring import Explanation, HashRing

ALGORITHM: Final = "v1"
"""`spec.algorithm` of a ring; also distinguishes this package from the foreign `ring` on PyPI."""

__all__ = [
    "ALGORITHM",
    "HASH_SPACE",
    "EmptyRingError",
    "Explanation",
    "HashRing",
    "InvalidRing",
    "Movement",
    "RingError",
    "Transition",
    "hash_key",
    "hash_keys",
    "movement",
    "object_key",
]
