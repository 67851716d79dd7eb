"""Messages for commands that fail: one message with the failure and its remedy. Pure.

Owns the messages and the exit codes (2: the input is wrong, 1: any other failure). `kubeio.program.command_line` and
`kubeio.program.runtime` print them. An error that is not named here is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kubeio.errors import (
    ApiError,
    Forbidden,
    InputError,
    KubeError,
    NotFound,
    Unauthorized,
    Unreachable,
    leaves,
)
from kubeio.protocol import CONTROLLER_RINGS

BAD_INPUT = 2
FAILED = 1
_LONGEST_REFUSAL = 300
_NOT_INSTALLED = (
    f"does not know {CONTROLLER_RINGS.group_resource}: Ringleader's CustomResourceDefinition is not installed; "
    "install it: ringleader crds | kubectl apply --server-side -f -, or the Helm chart"
)

_DENIED = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r' in API group "(?P<group>[^"]*)"(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_NAMESPACE = re.compile(r'namespaces? "(?P<name>[^"]*)" not found')


@dataclass(frozen=True, slots=True)
class Failure:
    message: str
    exit_code: int


def exit_code_of(error: BaseException) -> int:
    """The exit code of a process that *error* ends: its own, `BAD_INPUT` for bad input, else `FAILED`."""
    causes = list(leaves(error))
    if any(isinstance(cause, InputError) for cause in causes):
        return BAD_INPUT
    return next((code for cause in causes if (code := own_exit_code(cause)) is not None), FAILED)


def unforeseen(error: BaseException) -> list[BaseException]:
    """The exceptions inside *error* that are bugs of ours: neither an answer of the API nor with an exit code."""
    return [
        cause for cause in leaves(error) if not isinstance(cause, KubeError) and own_exit_code(cause) is None
    ]


def own_exit_code(error: BaseException) -> int | None:
    """The exit code that *error* itself asks for."""
    code = getattr(error, "exit_code", None)
    return code if isinstance(code, int) else None


class FailedAt(KubeError):
    """A request to *server* failed with *error*: the message names both."""

    def __init__(self, error: KubeError, server: str) -> None:
        self.error = error
        self.server = server
        super().__init__(f"{server}: {error}")


def failure(error: KubeError, *, server: str = "") -> Failure:
    """The message for *error*; *server* is the URL that was asked, where one is known."""
    match error:
        case FailedAt(error=inner, server=at):
            return failure(inner, server=at)
        case InputError():
            return Failure(str(error), BAD_INPUT)
        case Unreachable():
            return Failure(_unreachable(error, server), FAILED)
        case Unauthorized():
            return Failure(_unauthorized(error, server), FAILED)
        case Forbidden():
            return Failure(_forbidden(error), FAILED)
        case NotFound() if f"/{CONTROLLER_RINGS.plural}" in error.attempted and not names_an_object(error):
            return Failure(f"{server or 'the server'} {_NOT_INSTALLED}", FAILED)
        case NotFound() if missing := _NAMESPACE.search(error.message):
            name = missing["name"]
            remedy = f"create it (kubectl create namespace {name}), or name another"
            return Failure(f"{error.attempted}: namespace {name!r} does not exist; {remedy}", FAILED)
        case ApiError():
            return Failure(f"{error.attempted}: {error.status} {error.reason}: {error.message}", FAILED)
        case _:
            return Failure(str(error), FAILED)


def _unreachable(error: Unreachable, server: str) -> str:
    if "certificate" in error.reason:
        remedy = (
            "take certificate-authority-data from the cluster itself, and check that the kubeconfig's context is "
            "the one you mean"
        )
    else:
        remedy = (
            "check that the server runs and that the kubeconfig's context is the one you mean "
            "(kubectl config current-context), or give --context"
        )
    return f"{server or error.attempted}: no answer: {error.reason}; {remedy}"


def _unauthorized(error: Unauthorized, server: str) -> str:
    return (
        f"{server or error.attempted}: the server does not accept these credentials (401 {error.message}); "
        "renew them in the kubeconfig, or choose another context with --context"
    )


def _forbidden(error: Forbidden) -> str:
    denied = _DENIED.search(error.message)
    if denied is None:
        return (
            f"{error.attempted}: forbidden: {error.message}; ask for the right, or choose another --context"
        )
    resource, group = denied["resource"], denied["group"]
    where = f"in namespace {denied['namespace']}" if denied["namespace"] else "in the whole cluster"
    kind = "Role" if denied["namespace"] else "ClusterRole"
    rule = f'{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{denied["verb"]}"]}}'
    return (
        f'"{denied["user"]}" may not {denied["verb"]} {resource}{"." + group if group else ""} {where}; '
        f"this rule in a {kind} bound to it grants that: {rule}"
    )


def refusal(error: ApiError) -> str:
    """The API server's reason for refusing a write of one object, bounded in length."""
    text = error.message
    return text if len(text) <= _LONGEST_REFUSAL else f"{text[:_LONGEST_REFUSAL]}..."


def names_an_object(error: NotFound) -> bool:
    """`websites.example.com "x" not found` names an object; an unknown resource names none."""
    return '"' in error.message and "could not find the requested resource" not in error.message
