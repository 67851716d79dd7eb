"""The names of a new project, from what a person wrote: one name gives all others. Pure.

Owns which names can be used, and the message for those that cannot.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass

from kubeio.errors import InputError

_LABEL = re.compile(r"\A[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z")
_GROUP = re.compile(r"\A[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+\Z")
_KIND = re.compile(r"\A[A-Z][A-Za-z0-9]{0,49}\Z")
_PLURAL = re.compile(r"\A[a-z][a-z0-9]{0,52}\Z")
_RESERVED_GROUPS = ("k8s.io", "kubernetes.io", "ringleader.dev")
_TAKEN_KINDS = frozenset(
    "ConfigMap ControllerRing CronJob DaemonSet Deployment Event Ingress Job Lease Namespace Node Pod ReplicaSet "  # noqa: SIM905
    "Secret Service StatefulSet".split()
)


@dataclass(frozen=True, slots=True)
class Names:
    """*project* is the distribution and the chart's controller, *plural* the resource and the variable in the code."""

    project: str
    group: str
    kind: str
    plural: str

    @property
    def singular(self) -> str:
        return self.kind.lower()

    def fields(self) -> dict[str, str]:
        """What stands for each placeholder of a template."""
        return {
            "project": self.project,
            "group": self.group,
            "Kind": self.kind,
            "singular": self.singular,
            "plural": self.plural,
            "PLURAL": self.plural.upper(),
        }


def names_of(project: str, *, group: str, kind: str = "", plural: str = "") -> Names:
    """The names of *project*: `websites` has the kind Website and the plural websites unless told otherwise.

    Raises: InputError naming what cannot be used.
    """
    if _LABEL.match(project) is None:
        remedy = "use up to 40 of a-z, 0-9 and - inside, such as websites"
        raise InputError("NAME", project, "cannot be the name of a project", remedy)
    _check_group(group)
    kind = kind or _kind_of(project)
    if _KIND.match(kind) is None or keyword.iskeyword(kind):
        remedy = "use up to 50 letters and digits, the first a capital letter, such as Website"
        raise InputError("--kind", kind, "is not a kind", remedy)
    if kind in _TAKEN_KINDS:
        raise InputError(
            "--kind", kind, "is taken by Kubernetes or by Ringleader", "choose a name of your own"
        )
    plural = plural or _plural_of(kind.lower())
    if _PLURAL.match(plural) is None or keyword.iskeyword(plural):
        remedy = "use up to 53 of a-z and 0-9, the first a letter, such as websites"
        raise InputError("--plural", plural, "is not the plural name of a resource", remedy)
    return Names(project, group, kind, plural)


def _check_group(group: str) -> None:
    if _GROUP.match(group) is None or len(group) > 200:
        remedy = "write a domain that is yours, such as example.com"
        raise InputError("--group", group, "is not an API group", remedy)
    for reserved in _RESERVED_GROUPS:
        if group == reserved or group.endswith(f".{reserved}"):
            raise InputError(
                "--group", group, f"is reserved: {reserved} is not yours", "write a domain that is yours"
            )


def _kind_of(project: str) -> str:
    """`cdn-sites` makes CdnSite."""
    *first, last = project.split("-")
    words = [*first, _singular_of(last)]
    return "".join(word[:1].upper() + word[1:] for word in words)


def _singular_of(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ses", "xes", "ches", "shes")) and len(word) > 4:
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 1 else word


def _plural_of(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in ("a", "e", "i", "o", "u", ""):
        return f"{word[:-1]}ies"
    return f"{word}s"
