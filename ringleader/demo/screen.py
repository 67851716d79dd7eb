"""Output of the demo: a live view on a terminal, plain lines in a pipe, nothing when it is headless.

Owns the layout. Receives messages and views, reads nothing.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

_LINES = 12


@dataclass(frozen=True, slots=True)
class View:
    """The state of a fleet at one moment: as a *line*, and as what stands above the messages."""

    line: str = ""
    body: tuple[RenderableType, ...] = ()


class Screen(Protocol):
    """Output of the acts."""

    def act(self, title: str, explanation: str) -> None:
        """Begin an act."""

    def say(self, text: str, *, weight: str = "") -> None:
        """Show a message; *weight* is good, bad or empty."""

    def show(self, view: View) -> None:
        """Show the fleet's newest state."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SilentScreen:
    """For `--headless`."""

    def act(self, title: str, explanation: str) -> None: ...
    def say(self, text: str, *, weight: str = "") -> None: ...
    def show(self, view: View) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LineScreen(SilentScreen):
    """One line per message and one every few seconds: for pipes and logs."""

    def __init__(self, stream: TextIO | None = None, *, every_s: float = 5.0) -> None:
        self._stream = stream or sys.stdout
        self._began = time.monotonic()
        self._every_s = every_s
        self._shown_at = 0.0

    def act(self, title: str, explanation: str) -> None:
        self._print(f"== {title}: {explanation}")

    def say(self, text: str, *, weight: str = "") -> None:
        self._print(text)

    def show(self, view: View) -> None:
        if time.monotonic() - self._shown_at < self._every_s:
            return
        self._shown_at = time.monotonic()
        self._print(f"   {view.line}")

    def _print(self, line: str) -> None:
        self._stream.write(f"{time.monotonic() - self._began:6.1f} s  {line}\n")
        self._stream.flush()


@dataclass(slots=True)
class LiveScreen:
    """A table of the fleet, drawn four times a second, above the last messages."""

    console: Console
    subtitle: str = ""
    title: str = "Starting"
    explanation: str = ""
    view: View = field(default_factory=View)
    _lines: deque[Text] = field(default_factory=lambda: deque(maxlen=_LINES))
    _began: float = field(default_factory=time.monotonic)
    _live: Live | None = None

    def __enter__(self) -> Self:
        self._live = Live(get_renderable=self._draw, console=self.console, refresh_per_second=4)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def act(self, title: str, explanation: str) -> None:
        self.title, self.explanation = title, explanation
        self._log(Text(title, style="bold"))

    def say(self, text: str, *, weight: str = "") -> None:
        self._log(Text(text, style={"good": "green", "bad": "bold red"}.get(weight, "")))

    def show(self, view: View) -> None:
        self.view = view

    def _log(self, line: Text) -> None:
        stamp = Text(f"{time.monotonic() - self._began:5.1f} s  ", style="dim")
        self._lines.append(stamp + line)

    def _draw(self) -> RenderableType:
        return Panel(
            Group(
                Text(self.title, style="bold"),
                Text(self.explanation, style="dim"),
                Text(),
                *self.view.body,
                Rule(style="dim"),
                *self._lines,
                *[Text()] * (_LINES - len(self._lines)),
            ),
            title="[bold]Ringleader[/bold]",
            subtitle=Text(self.subtitle, style="dim"),
            box=box.ROUNDED,
            padding=(0, 1),
        )


def choose_screen(*, is_headless: bool, subtitle: str = "") -> Screen:
    """The screen that fits stdout."""
    if is_headless:
        return SilentScreen()
    console = Console()
    is_live = console.is_terminal and not console.is_dumb_terminal
    return LiveScreen(console, subtitle) if is_live else LineScreen()
