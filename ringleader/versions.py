"""`ringleader version`: the version of this program, and that of the API server."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec

from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, print_document, print_line

if TYPE_CHECKING:
    from kubeio.rest.client import Client


class _ServerVersion(msgspec.Struct, rename="camel"):
    git_version: str = ""


def run_version(where: ConnectionOptions, *, is_client_only: bool, form: Form | None) -> int:
    """The command. The client's version is printed first: it is known although no server answers."""
    own = version("ringleader")
    document: dict[str, object] = {"clientVersion": {"ringleader": own, "python": platform.python_version()}}
    document_form = form if form in (Form.JSON, Form.YAML) else None
    if document_form is None:
        print_line(f"Client Version: {own}")
    if not is_client_only:

        async def ask(client: Client, _: object) -> str:
            answer = await client.request("GET", "/version", timeout_s=where.timeout_s)
            return msgspec.json.decode(answer.body, type=_ServerVersion).git_version

        found = connected(where, ask)
        document["serverVersion"] = {"gitVersion": found}
        if document_form is None:
            print_line(f"Server Version: {found}")
    if document_form is not None:
        print_document(document, form=document_form)
    return 0
