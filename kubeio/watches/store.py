"""Objects of one resource as bytes, with an index of controlled objects and indexes of users' own. Pure.

Owns what is known of each object and never lets it go back in time. Does not fetch anything and does not
know why an object left. One event loop, no locks.

Metadata is decoded when asked for: about 2 us, against 600 to 1,000 bytes per object if it were kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kubeio.decoding import meta_of, object_from
from kubeio.models import Meta, Object, ObjectKey
from kubeio.versions import is_older
from kubeio.watches.compression import Dictionary, dictionary_for, is_packed
from kubeio.watches.index import Index, KeysByValue
from kubeio.watches.storage import PLAIN, StoredForm, with_annotations, without_managed_fields

_RECENT: Final = 64
_RECENT_BYTES: Final = 64 * 1024
"""Larger objects are unpacked each time: the cache of unpacked ones stays below 4 MB."""
_PACKED_AT_ONCE: Final = 8
"""Objects packed for each one that comes, until none is left unpacked: no pause is ever long."""

IndexFunction = Callable[[bytes], Iterable[str]]


class Change(msgspec.Struct, frozen=True, gc=False):
    """A change of one object in a store. *old* is None: it was not known; *new* is None: it left.

    *left_at*: resourceVersion at which it had left at the latest; empty if that is not known.
    """

    key: ObjectKey
    old: Meta | None
    new: Meta | None
    left_at: str = ""


class TransformFault(ValueError):
    """A transform changed what a store goes by. The object is kept as it came."""


OnFault = Callable[[ObjectKey, str, Exception], None]
"""Reports that a function of a user failed for an object: its key, `transform` or `index NAME`, the error."""


class Store:
    """The newest known version of each object, in the given *form*.

    *indexes*: by name, what gives the values of an object for the bytes that are kept of it. An object whose
    function fails has no values; one whose transform fails is kept untransformed; both are reported to *on_fault*.

    Memory: the bytes as kept and about 190 bytes per object, 100 more if it has a controller.
    Cost of a read: a lookup, and `Dictionary.unpack` for an object that is kept compressed and was not read lately.
    """

    def __init__(
        self,
        form: StoredForm = PLAIN,
        *,
        indexes: Mapping[str, IndexFunction] | None = None,
        on_fault: OnFault = lambda key, function, error: None,
    ) -> None:
        self._form = form
        self._on_fault = on_fault
        self._stored: dict[ObjectKey, bytes] = {}
        self._children = KeysByValue()
        self._functions = dict(indexes or {})
        self._indexes = {name: Index() for name in self._functions}
        self._dictionary: Dictionary | None = None
        self._may_pack = form.compress_from_objects > 0
        self._plain_bytes = 0  # counted until it is decided whether to pack
        self._unpacked: list[ObjectKey] = []  # to be packed still
        self._recent: dict[ObjectKey, tuple[bytes, bytes]] = {}  # as stored, and unpacked

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._stored

    def __iter__(self) -> Iterator[ObjectKey]:
        """Every known key; the store must not change meanwhile."""
        return iter(self._stored)

    @property
    def is_packing(self) -> bool:
        """Whether objects are kept compressed."""
        return self._dictionary is not None

    def stored_bytes(self) -> int:
        """Bytes kept of all objects together, without keys and indexes. Cost: O(objects)."""
        return sum(map(len, self._stored.values()))

    def keys(self) -> list[ObjectKey]:
        """Every known key, as a list that later changes leave alone."""
        return list(self._stored)

    def get(self, key: ObjectKey) -> Object | None:
        """The newest known version of *key*. Its metadata is the caller's own."""
        raw = self.raw(key)
        return None if raw is None else object_from(raw)

    def meta(self, key: ObjectKey) -> Meta | None:
        """Its metadata only."""
        raw = self.raw(key)
        return None if raw is None else meta_of(raw)

    def raw(self, key: ObjectKey) -> bytes | None:
        """Its JSON only: nothing is decoded."""
        stored = self._stored.get(key)
        if stored is None or self._dictionary is None or not is_packed(stored):
            return stored
        recent = self._recent.get(key)
        if recent is not None and recent[0] is stored:
            return recent[1]
        raw = self._dictionary.unpack(stored)
        if len(raw) <= _RECENT_BYTES:
            self._remember(key, stored, raw)
        return raw

    def children(self, uid: str) -> set[ObjectKey]:
        """Known objects whose controller has *uid*."""
        return self._children.get(uid)

    def by_index(self, name: str, value: str) -> set[ObjectKey]:
        """Known objects for which the function of the index *name* gave *value*. Raises KeyError: no such index."""
        return self._indexes[name].get(value)

    def values(self, name: str, key: ObjectKey, raw: bytes) -> frozenset[str]:
        """Values in the index *name* for *key* if *raw* is its JSON; the store need not know that object."""
        try:
            return _checked(self._functions[name](raw))
        except Exception as error:  # a user's code
            self._on_fault(key, f"index {name}", error)
            return frozenset()

    def learn(self, obj: Object) -> Change | None:
        """Take *obj* in; None if nothing changed (same bytes, or an older version than the known one)."""
        key = obj.meta.key
        old_raw = self.raw(key)
        obj = self._formed(obj)
        if old_raw == obj.raw:
            return None
        old = None if old_raw is None else meta_of(old_raw)
        if old is None:
            key = ObjectKey(sys.intern(key.namespace), key.name)
            obj.meta.namespace = key.namespace  # keys made of it share one copy of the name
        elif is_older(obj.meta.resource_version, old.resource_version):
            return None
        self._keep(key, obj.raw, len(old_raw) if old_raw is not None else 0)
        self._reindex(key, old, obj.meta)
        for name, index in self._indexes.items():
            index.put(key, self.values(name, key, obj.raw))
        return Change(key, old, obj.meta)

    def remove(self, key: ObjectKey, *, as_of: str = "") -> Object | None:
        """Drop *key*; returns what was known. A version newer than *as_of* stays: the removal is older."""
        known = self.get(key)
        if known is None or (as_of and is_older(as_of, known.meta.resource_version)):
            return None
        del self._stored[key]
        self._recent.pop(key, None)
        self._plain_bytes -= len(known.raw)
        self._reindex(key, known.meta, None)
        for index in self._indexes.values():
            index.put(key, frozenset())
        return known

    # -- what is kept

    def _formed(self, obj: Object) -> Object:
        """*obj* as it is to be kept, not yet compressed."""
        form = self._form
        raw = without_managed_fields(obj.raw) if form.strips else obj.raw
        if form.transform is None:
            return Object(obj.meta, raw)
        try:
            return _transformed(form.transform, raw, obj.meta, keeps=form.keeps)
        except Exception as error:  # a user's code
            self._on_fault(obj.meta.key, "transform", error)
            return Object(obj.meta, raw)

    def _keep(self, key: ObjectKey, raw: bytes, old_bytes: int) -> None:
        if self._dictionary is not None:
            stored = self._stored[key] = self._dictionary.pack(raw)
            if old_bytes and len(raw) <= _RECENT_BYTES:  # it changed: a reader follows soon
                self._remember(key, stored, raw)
            if self._unpacked:
                self._pack_some(self._dictionary)
            return
        self._stored[key] = raw
        if self._may_pack:
            self._plain_bytes += len(raw) - old_bytes
            form = self._form
            if (
                len(self._stored) >= form.compress_from_objects
                or self._plain_bytes >= form.compress_from_bytes
            ):
                self._decide_to_pack()

    def _decide_to_pack(self) -> None:
        """Compress from now on, if that is worth it; what is there already follows with what comes."""
        self._may_pack = False
        self._dictionary = dictionary_for(list(self._stored.values()), worth_it=self._form.worth_it)
        if self._dictionary is not None:
            self._unpacked = list(self._stored)

    def _pack_some(self, dictionary: Dictionary) -> None:
        for key in self._unpacked[-_PACKED_AT_ONCE:]:
            stored = self._stored.get(key)
            if stored is not None and not is_packed(stored):
                self._stored[key] = dictionary.pack(stored)
        del self._unpacked[-_PACKED_AT_ONCE:]

    def _remember(self, key: ObjectKey, stored: bytes, raw: bytes) -> None:
        recent = self._recent
        recent.pop(key, None)
        if len(recent) >= _RECENT:
            del recent[next(iter(recent))]
        recent[key] = (stored, raw)

    # -- indexes

    def _reindex(self, key: ObjectKey, old: Meta | None, new: Meta | None) -> None:
        before = old.controller if old is not None else None
        after = new.controller if new is not None else None
        old_uid = before.uid if before is not None else ""
        new_uid = after.uid if after is not None else ""
        if old_uid == new_uid:
            return
        if old_uid:
            self._children.drop(old_uid, key)
        if new_uid:
            self._children.add(new_uid, key)


def _checked(values: Iterable[str]) -> frozenset[str]:
    """*values* of an index. Raises TypeError if they are none."""
    if isinstance(values, str):
        raise TypeError("it gave a str, not an iterable of them")
    found = frozenset(values)
    if not all(isinstance(value, str) for value in found):
        raise TypeError("it gave something that is no str")
    return found


def _transformed(
    transform: Callable[[bytes], bytes], raw: bytes, before: Meta, *, keeps: frozenset[str]
) -> Object:
    """The object that *transform* makes of *raw*, with the annotations *keeps* as they were *before*.

    Raises: TransformFault, any exception of *transform*, msgspec.DecodeError.
    """
    transformed = transform(raw)
    meta = meta_of(transformed)
    kept = {key: before.annotations[key] for key in keeps if key in before.annotations}
    if not kept.items() <= meta.annotations.items():
        transformed = with_annotations(transformed, kept)
        meta = meta_of(transformed)
    if not transformed.startswith(b"{") or not _is_same(meta, before):
        raise TransformFault("it changed the metadata that the cache goes by")
    return Object(meta, transformed)


def _is_same(meta: Meta, before: Meta) -> bool:
    """Whether all is left that stores, guards and drains go by."""
    return (
        meta.name == before.name
        and meta.namespace == before.namespace
        and meta.uid == before.uid
        and meta.resource_version == before.resource_version
        and meta.generation == before.generation
        and meta.labels == before.labels
        and meta.owner_references == before.owner_references
        and meta.finalizers == before.finalizers
        and meta.deletion_timestamp == before.deletion_timestamp
    )
