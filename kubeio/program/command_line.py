"""A command from its arguments to its exit code: wrong input ends in one line on stderr.

Owns the line for each kind of mistake and the state of the standard streams; the commands themselves, and what they
print, are their own.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kubeio.errors import KubeError
from kubeio.program.failures import BAD_INPUT, FAILED, Failure, failure
from kubeio.program.import_check import check_packages

if TYPE_CHECKING:
    import typer

INTERRUPTED: Final = 128 + signal.SIGINT
_INTERRUPTED: Final = Failure("interrupted", INTERRUPTED)

_NOISE: Final = ("Value error, ",)
"""Prefix of the value parser before our own message."""

_PLACES: Final = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there",
    errno.EROFS: "choose a place that can be written to",
    errno.EACCES: "choose a place that this user may write to",
    errno.EPERM: "choose a place that this user may write to",
    errno.ENOTDIR: "choose a place inside a folder",
    errno.EISDIR: "name a file, not a folder",
}
"""Failures of a file system that a person can cure, and how."""


def run_command(app: typer.Typer, *, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run *app*, called *name* in its messages, with *arguments* (None: the process's own); the exit code."""
    return run_guarded(lambda: _run_typer(app, name, sys.argv[1:] if arguments is None else arguments))


def run_guarded(run: Callable[[], int | None]) -> int:
    """Run a command; the exit code. Mistakes of the person become one line on stderr. Imports no typer."""
    _open_standard_streams()
    try:
        check_packages()
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output went away: `... | head`
        _discard_output()
        return FAILED
    except KubeError as error:
        return _report(failure(error))
    except OSError as error:
        if (remedy := _PLACES.get(error.errno or 0)) is None:
            raise  # a fault of ours
        _discard_output()
        return _report(
            Failure(
                f"{error.filename or 'standard output'}: {os.strerror(error.errno or 0)}; {remedy}", FAILED
            )
        )
    except KeyboardInterrupt:
        return _report(_INTERRUPTED)
    return code or 0


def _run_typer(app: typer.Typer, name: str, arguments: Sequence[str]) -> int:
    import typer

    try:
        code = typer.main.get_command(app).main(args=list(arguments), prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help page: lines, not one line
            sys.stderr.write(error.format_message() + "\n")
            return BAD_INPUT
        return _report(usage_failure(error, name, given=arguments))
    except typer.Abort:
        code = INTERRUPTED
    if code == INTERRUPTED:  # what typer makes of Ctrl-C
        return _report(_INTERRUPTED)
    return code if isinstance(code, int) else 0


def usage_failure(error: typer.TyperException, name: str, *, given: Sequence[str]) -> Failure:
    """*error* in the arguments *given* as one line: what is wrong, what is meant perhaps, where to read more."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else name
    if near := getattr(error, "possibilities", None):
        text = f"{_one_line(error.message)}. Did you mean {' or '.join(sorted(near))}?"
    else:
        text = _one_line(error.format_message()) + _value(error, given)
        text += "?" if "Did you mean" in text else ";"
    return Failure(f"{text} see {path} -h", BAD_INPUT)


def _one_line(text: str) -> str:
    for noise in _NOISE:
        text = text.replace(noise, "")
    return " ".join(text.split()).rstrip(".?")


def _value(error: typer.TyperException, given: Sequence[str]) -> str:
    """The value that an option could not take, as it was written."""
    for flag in getattr(getattr(error, "param", None), "opts", ()):
        if not flag.startswith("-"):
            continue  # an argument, which is said without its name
        for argument, following in zip(given, [*given[1:], ""], strict=True):
            if argument == flag and following:
                return f" (given: {following!r})"
            if argument.startswith(flag + "="):
                return f" (given: {argument.removeprefix(flag + '=')!r})"
    return ""


def _open_standard_streams() -> None:
    """Put the null device where a standard stream is closed: the next file opened must not take its number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _discard_output() -> None:
    """Let nothing be written at the interpreter's exit: it would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(failed: Failure) -> int:
    sys.stderr.write(f"error: {failed.message}\n")
    return failed.exit_code
