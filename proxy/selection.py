"""The selection of a shard in the query of a collection request. Pure.

The server filters, in whatever encoding the client asked for: no answer is decoded or changed.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from kubeio.rest.request_info import first_values, is_true, query_pieces
from proxy.alias import Alias

_SELECTOR: Final = "labelSelector"
_VERSION: Final = "resourceVersion"
_MATCH: Final = "resourceVersionMatch"


def select(target: str, terms: str, *, not_older_than: str = "", alias: Alias | None = None) -> str:
    """*target* (path and query), its answer limited to what the label selector *terms* selects, too.

    A selector that names the *alias* asks for the shard.

    A list from any version (`resourceVersion=0`, the first of every reflector) becomes one that is *not_older_than*
    this version; empty: it stays. A plain watch from version 0 stays: a higher number would mean something else.
    """
    path, _, query = target.partition("?")
    values = first_values(query)
    existing = values.get(_SELECTOR, "")
    if alias is not None:
        existing = alias.selector(existing)
    replaced = {_SELECTOR: f"{existing},{terms}" if existing else terms}
    is_initial = not is_true(values.get("watch")) or is_true(values.get("sendInitialEvents"))
    if not_older_than and is_initial and values.get(_VERSION) == "0" and not values.get("continue"):
        replaced |= {_VERSION: not_older_than, _MATCH: "NotOlderThan"}
    kept = [piece for piece, name, _ in query_pieces(query) if name not in replaced]
    added = [f"{name}={quote(value, safe='', errors='surrogateescape')}" for name, value in replaced.items()]
    return f"{path}?{'&'.join(kept + added)}"
