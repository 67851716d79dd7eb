"""Which of its three questions `ringleader where` is asked: about one object, those of a file, or all.

Owns what of its flags goes together.
"""

from __future__ import annotations

from typing import NamedTuple

from kubeio.errors import InputError
from ringleader.options import ConnectionOptions
from ringleader.output import Form


class Asked(NamedTuple):
    """The flags, as they were given."""

    target: str | None
    file: str | None
    everything: bool
    controlled: bool
    namespace: str | None
    all_namespaces: bool
    ring: str | None


def run_where_command(where: ConnectionOptions, asked: Asked, *, form: str) -> int:
    """The command. Raises InputError where flags do not go together."""
    check(asked, form)
    if asked.target is not None:
        from ringleader.inspect.where.one import run_where

        one = Form(form) if form else None
        return run_where(where, asked.target, namespace=asked.namespace, ring=asked.ring, form=one)
    if asked.file is not None:
        from ringleader.inspect.where.many import run_file

        return run_file(where, asked.file, namespace=asked.namespace, ring=asked.ring, form=form)
    from ringleader.inspect.where.many import run_everywhere

    return run_everywhere(
        where, namespace=asked.namespace, ring=asked.ring, controlled=asked.controlled, form=form
    )


def check(asked: Asked, form: str) -> None:
    """Raises InputError if *asked* is not exactly one question."""
    given = [asked.target is not None, asked.file is not None, asked.everything]
    if sum(given) != 1:
        shown = asked.target or asked.file or ""
        problem = "is not the only question" if any(given) else "is missing"
        raise InputError("KIND/NAME", shown, problem, "give one of KIND/NAME, -f FILE and --all")
    if form == "csv" and asked.target is not None:
        raise InputError("-o", form, "is for many objects", "give --all or -f FILE, or leave -o csv out")
    if asked.controlled and not asked.everything:
        raise InputError("--controlled", True, "goes with --all only", "leave it out")
    if asked.all_namespaces and not asked.everything:
        raise InputError("-A", True, "goes with --all only", "name the object's namespace with -n")
    if asked.all_namespaces and asked.namespace:
        raise InputError("-n", asked.namespace, "contradicts -A", "give one of the two")
