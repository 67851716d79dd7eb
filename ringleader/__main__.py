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
        return _tell(usage_failure(error, name))
    except FailedAt as failed:
        return _tell(failure(failed.error, server=failed.server))
    except KubeError as error:
        return _tell(failure(error))
    except (KeyboardInterrupt, typer.Abort):
        return _tell(Failure("interrupted", 130))
    except BrokenPipeError:  # the reader of our output went away: `ringleader status | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code if isinstance(code, int) else 0


def usage_failure(error: typer.TyperException, name: str) -> Failure:
    """*error* of the command line as one line that says where to read more."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else name
    text = " ".join(error.message.split()).rstrip(".?")
    near = getattr(error, "possibilities", None)
    if near:
        text += f". Did you mean {' or '.join(sorted(near))}"
    elif not hasattr(error, "option_name"):
        text = " ".join(error.format_message().split()).rstrip(".?")
    end = "?" if "Did you mean" in text else ";"
    return Failure(f"{text}{end} see {path} -h", BAD_INPUT)


def _tell(told: Failure) -> int:
    sys.stderr.write(f"error: {told.message}\n")
    return told.exit_code


if __name__ == "__main__":
    sys.exit(main())
