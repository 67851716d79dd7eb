"""Keys by a value: what an index of a store is made of. Pure.

Owns nothing but the mapping; `kubeio.watches.store` says when an object has which values.
"""

from __future__ import annotations

from kubeio.models import ObjectKey


class KeysByValue:
    """Map from each value to the keys that have it.

    Memory: about 100 bytes per value that one key has, the usual case: no set is made for it.
    """

    def __init__(self) -> None:
        self._keys: dict[str, ObjectKey | set[ObjectKey]] = {}

    def __len__(self) -> int:
        """Number of values."""
        return len(self._keys)

    def get(self, value: str) -> set[ObjectKey]:
        """Every key that has *value*, as a set of the caller's own."""
        found = self._keys.get(value)
        if found is None:
            return set()
        return set(found) if isinstance(found, set) else {found}

    def add(self, value: str, key: ObjectKey) -> None:
        """*key* has *value* from now on."""
        found = self._keys.get(value)
        if found is None:
            self._keys[value] = key
        elif isinstance(found, set):
            found.add(key)
        elif found != key:
            self._keys[value] = {found, key}

    def drop(self, value: str, key: ObjectKey) -> None:
        """*key* does not have *value* any more."""
        found = self._keys.get(value)
        if isinstance(found, set):
            found.discard(key)
            if not found:
                del self._keys[value]
        elif found == key:
            del self._keys[value]


class Index:
    """Keys by the values that a function gives for their objects.

    Keeps which values each key has: the function is never asked about an old version, so that it need not be pure.
    Memory: that of `KeysByValue`, and about 100 bytes per object that has a value.
    """

    def __init__(self) -> None:
        self._keys = KeysByValue()
        self._values: dict[ObjectKey, tuple[str, ...]] = {}

    def get(self, value: str) -> set[ObjectKey]:
        """Every key that has *value*, as a set of the caller's own."""
        return self._keys.get(value)

    def put(self, key: ObjectKey, values: frozenset[str]) -> None:
        """*key* has exactly *values* from now on; none takes it out."""
        old = self._values.get(key, ())
        for value in old:
            if value not in values:
                self._keys.drop(value, key)
        for value in values:
            if value not in old:
                self._keys.add(value, key)
        if values:
            self._values[key] = tuple(values)
        elif old:
            del self._values[key]
