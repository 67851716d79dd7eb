"""The frame of the scripts on pyperf: the runner with a script's own flags, and one table of what came out.

pyperf's own flags apply: `--fast` for a trial, `-o FILE` for its JSON; `python -m pyperf compare_to A B` compares two.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyperf
from rich.console import Console
from rich.table import Table

BYTES: Final = {"unit": "byte"}
"""Metadata of a benchmark whose values are sizes."""


def make_runner(
    module: str,
    flags: Mapping[str, tuple[int, str]],
    *,
    handed_on: Sequence[str] = (),
    min_time_s: float = 0.1,
) -> pyperf.Runner:
    """A runner of the script *module* with integer *flags* (default and help by name), handed to its workers.

    *handed_on*: texts that the script itself sets for its workers.

    Three processes of three values each: all scripts together take minutes, and `--rigorous` doubles them.
    """

    def hand_on(command: list[str], options: argparse.Namespace) -> None:
        for name in (*flags, *handed_on):
            command += [f"--{name}", str(getattr(options, name.replace("-", "_")))]

    runner = pyperf.Runner(
        processes=3, values=3, min_time=min_time_s, program_args=("-m", module), add_cmdline_args=hand_on
    )
    for name, (default, meaning) in flags.items():
        runner.argparser.add_argument(
            f"--{name}", type=int, default=default, help=f"{meaning} (default {default})"
        )
    for name in handed_on:
        runner.argparser.add_argument(f"--{name}", default="", help=argparse.SUPPRESS)
    return runner


def mean(found: Any) -> float:
    """The mean of a pyperf benchmark; NaN in a worker, which has nothing to show."""
    return float(found.mean()) if found is not None and found.get_nvalue() else math.nan


def print_table(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    """On standard output: a row of cells by its name."""
    shown = Table("", title=title)
    for column in columns:
        shown.add_column(column, justify="right")
    for name, cells in rows.items():
        shown.add_row(name, *cells)
    Console(width=None if Console().is_terminal else 140).print(shown)


def timed_s(clock: Callable[[], float], action: Callable[[], object]) -> float:
    """Seconds of *action* by *clock*."""
    began = clock()
    action()
    return clock() - began
