"""The key of an object: the text to hash (docs/protocol.md, section 3).

That section, not this module, decides whose key counts for a controlled object.
"""

from __future__ import annotations


def object_key(group: str, namespace: str, name: str) -> str:
    """`<group>_<namespace>_<name>`; the core group and a cluster-scoped object's namespace are empty.

    Two objects never share a key: neither groups nor names of Kubernetes contain an underscore.
    """
    return f"{group}_{namespace}_{name}"
