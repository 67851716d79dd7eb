"""One line of a watch, however it is written: the object's own bytes, its metadata, the kind of news."""

from __future__ import annotations

import json

import pytest

from kubeio.errors import Unreachable
from kubeio.watches.watch_events import Bookmark, Changed, Removed, decode_line

OBJECT = (
    '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","resourceVersion":"7"}}'
)
CLOSED = OBJECT[:-1] + ',"data":{"page":"}}}"}}'


@pytest.mark.parametrize("raw", [OBJECT, CLOSED])
@pytest.mark.parametrize(
    "form",
    [
        '{"type":"%s","object":%s}',
        '{"type": "%s", "object": %s}',
        '{"type":"%s","object":%s }',
        '{"type":"%s","object":%s}\r',
        '{"type":"%s","object":%s,"more":{"object":{}}}',
        '{"type":"%s","more":1,"object":%s}',
    ],
)
@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
def test_the_object_is_the_bytes_that_stand_there(kind: str, form: str, raw: str) -> None:
    event = decode_line((form % (kind, raw)).encode(), "WATCH")
    if isinstance(event, Bookmark):
        assert kind == "BOOKMARK"
        assert event.resource_version == "7"
        return
    assert isinstance(event, Removed if kind == "DELETED" else Changed)
    assert isinstance(event, Changed | Removed)
    assert not isinstance(event, Changed) or event.is_new == (kind == "ADDED")
    assert json.loads(event.object.raw) == json.loads(raw)
    assert (event.object.meta.name, event.object.meta.resource_version) == ("a", "7")


@pytest.mark.parametrize("cut", [1, 2, 20, 60])
def test_a_torn_line_is_no_event(cut: int) -> None:
    line = f'{{"type":"ADDED","object":{CLOSED}}}'.encode()
    with pytest.raises(Unreachable, match="unreadable watch event"):
        decode_line(line[:-cut], "WATCH")
