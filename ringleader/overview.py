"""The commands of `ringleader` by what they are for: the order of its help, and the few lines for a bare call.

Owns the order only.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

PURPOSES: Final = {
    "Look into rings": ("status", "describe", "list", "check", "top"),
    "Show them": ("dashboard", "plot", "bundle"),
    "Plan and change": ("simulate", "cordon", "uncordon", "weight", "pause", "resume", "delete"),
    "Begin": (
        "demo",
        "init",
        "crds",
        "chart",
        "fence",
        "run",
        "sharder",
        "proxy",
        "devcluster",
        "migrate",
        "loadtest",
        "version",
    ),
}
"""Every command once."""
_FIRST: Final = [
    ("ringleader demo", "see a fleet at work; needs no cluster"),
    ("ringleader status", "the rings of the current context and their members"),
    ("ringleader check", "is anything wrong?"),
    ("ringleader -h", "every command in a line"),
]
_IS_BARE: Final = "ringleader.is_bare"


class Overview(TyperGroup):
    """A group whose help has a section per purpose, and is short if nothing was asked for."""

    def list_commands(self, ctx: Context) -> list[str]:
        """By purpose, for help and completion alike."""
        return list(chain.from_iterable(PURPOSES.values()))

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Note whether there is anything to parse."""
        ctx.meta[_IS_BARE] = not args
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Commands before options; of a bare call their names only."""
        if not ctx.meta.get(_IS_BARE):
            self.format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl([(purpose, ", ".join(names)) for purpose, names in PURPOSES.items()])
        with formatter.section("First steps"):
            formatter.write_dl(_FIRST)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, self.commands))
        for purpose, names in PURPOSES.items():
            with formatter.section(purpose):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(limit)) for name in names])
        rows = [row for param in self.get_params(ctx) if (row := param.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(rows)
