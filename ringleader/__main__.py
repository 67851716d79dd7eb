"""Entry of the command `ringleader`, also found by kubectl as `kubectl ringleader`.

Owns the exit code and the one message of a failure; the commands themselves are in `ringleader.cli`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from kubeio.errors import KubeError
from ringleader.failures import BAD_INPUT, FAILED, FailedAt, Failure, failure

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code; called by the installed script."""
    from ringleader.cli import app

    name = "kubectl ringleader" if Path(sys.argv[0]).name.startswith("kubectl") else "ringleader"
    command = typer.main.get_command(app)
    try:
        code = command.main(
            args=None if arguments is None else list(arguments), prog_name=name, standalone_mode=False
        )
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help page: lines, not one line
            sys.stderr.write(error.format_message() + "\n")
            return BAD_INPUT
        given = sys.argv[1:] if arguments is None else arguments
        return _tell(usage_failure(error, name, given=given))
    except FailedAt as failed:
        return _tell(failure(failed.error, server=failed.server))
    except KubeError as error:
        return _tell(failure(error))
    except (KeyboardInterrupt, typer.Abort):
        return _tell(Failure("interrupted", INTERRUPTED))
    except BrokenPipeError:  # the reader of our output went away: `ringleader status | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if code == INTERRUPTED:  # typer turns Ctrl-C into this
        return _tell(Failure("interrupted", INTERRUPTED))
    return code if isinstance(code, int) else 0


def usage_failure(error: typer.TyperException, name: str, *, given: Sequence[str]) -> Failure:
    """*error* in the words *given* as one line: what is wrong, what is meant perhaps, where to read more."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else name
    if near := getattr(error, "possibilities", None):
        text = f"{_one_line(error.message)}. Did you mean {' or '.join(sorted(near))}?"
    else:
        text = _one_line(error.format_message()) + _value(error, given)
        text += "?" if "Did you mean" in text else ";"
    return Failure(f"{text} see {path} -h", BAD_INPUT)


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".?")


def _value(error: typer.TyperException, given: Sequence[str]) -> str:
    """The value that an option could not take, as it was written."""
    for flag in getattr(getattr(error, "param", None), "opts", ()):
        for word, following in zip(given, [*given[1:], ""], strict=True):
            if word == flag:
                return f" (given: {following!r})"
            if word.startswith(flag + "="):
                return f" (given: {word.removeprefix(flag + '=')!r})"
    return ""


def _tell(told: Failure) -> int:
    sys.stderr.write(f"error: {told.message}\n")
    return told.exit_code


if __name__ == "__main__":
    sys.exit(main())
