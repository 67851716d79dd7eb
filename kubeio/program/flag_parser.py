"""Parser of a process's flags whose errors are one line, and name the flag that was meant."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from kubeio.program.failures import BAD_INPUT

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class FlagParser(argparse.ArgumentParser):
    """Flags in full words. Errors end the process with exit code 2."""

    def __init__(self, *, prog: str, usage: str, description: str) -> None:
        super().__init__(prog=prog, usage=usage, description=description, allow_abbrev=False)

    def add_values(self, flags: Iterable[tuple[str, str, str, str]]) -> None:
        """Add flags that take a value: name, form of the value, default, help."""
        for name, metavar, default, text in flags:
            shown = f"{text} [default: {default}]" if default else text
            self.add_argument(f"--{name}", metavar=metavar, default=default, help=shown)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Values of all flags as they were written. Raises: SystemExit after help and for unknown flags."""
        flags, unknown = self.parse_known_args(arguments)
        option = next((argument for argument in unknown if argument.startswith("-")), None)
        if option is not None:
            known = [f"--{name.replace('_', '-')}" for name in vars(flags)]
            name = option.partition("=")[0]
            near = difflib.get_close_matches(name, known)
            hint = f". Did you mean {' or '.join(sorted(near))}?" if near else ""
            self.error(f"No such option: {name}{hint}")
        if unknown:
            self.error(f"Got unexpected extra argument(s) ({' '.join(unknown)})")
        return flags

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Write the help. Raises: OSError, which argparse would swallow."""
        (file or sys.stdout).write(self.format_help())
        sys.stdout.flush()

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith("?") else ";"
        self.exit(BAD_INPUT, f"error: {message.removeprefix('argument ')}{end} see {self.prog} -h\n")
