"""What is hashed: the key of an object (docs/protocol.md, section 3).

Called by the sharder and by `ringleader where`; which object's key counts for a controlled object is decided
there, not here.
"""

from __future__ import annotations


def object_key(group: str, namespace: str, name: str) -> str:
    """`<group>_<namespace>_<name>`; the core group and a cluster-scoped object's namespace are empty.

    Two objects never share a key: neither groups nor names of Kubernetes contain an underscore.
    """
    return f"{group}_{namespace}_{name}"
