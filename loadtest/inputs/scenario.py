"""A scenario: operations and their rate over time, and what happens to the fleet meanwhile. Pure.

A scenario is a YAML file; the built-in ones are such files in `scenarios/`. Times are shares of the run (`30%`) or
durations (`20s`); rates are shares of --rate or operations per second. `schedule` turns it into absolute numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kubeio.errors import InputError
from kubeio.program.yaml_file import read_document
from kubeio.suggestions import nearest
from loadtest.inputs.fields import check_names, mapping, number, seconds, sequence, share

OPERATIONS: Final = ("create", "update", "delete")
BURST: Final = "burst"
ACTIONS: Final = {
    BURST: ("objects",),
    "join": (),
    "leave": ("replica",),
    "roll": (),
    "kill": ("replica",),
    "freeze": ("replica", "for"),
    "failover": (),
    "node-loss": ("for",),
    "restart-api": ("for",),
}
"""What may happen, and the fields beside `at` and `do`."""
_FOLDER: Final = Path(__file__).with_name("scenarios")
_FIELDS: Final = ("description", "operations", "load", "actions")
_STEPS: Final = 1000
_SPAWNED_S: Final = 2.0
"""How long it takes at most until the users of all processes are there."""
_FOR: Final = 0.2
"""How long a freeze or a loss lasts unless the action says so: this share of the run."""


class Action(msgspec.Struct, frozen=True, rename={"for_s": "for"}, omit_defaults=True):
    """What happens *at* seconds of load. *replica* empty: one is chosen. *for_s*: seconds until it is over."""

    at: float
    do: str
    replica: str = ""
    objects: int = 0
    for_s: float = 0.0


class Point(msgspec.Struct, frozen=True):
    """The rate *at* seconds of load; linear between two points."""

    at: float
    rate: float


class Schedule(msgspec.Struct, frozen=True):
    """A scenario in absolute numbers: seconds and operations per second."""

    scenario: str
    duration_s: float
    operations: dict[str, int]
    points: list[Point]
    actions: list[Action]

    def rate_at(self, t: float) -> float:
        """Operations per second wanted at *t* seconds; 0 after the end."""
        if t >= self.duration_s:
            return 0.0
        before = self.points[0]
        for point in self.points:
            if point.at > t:
                if point.at <= before.at:
                    return point.rate
                part = max(0.0, t - before.at) / (point.at - before.at)
                return before.rate + part * (point.rate - before.rate)
            before = point
        return before.rate

    @property
    def peak_rate(self) -> float:
        return max(point.rate for point in self.points)

    @property
    def wanted_operations(self) -> float:
        """Operations that the whole run asks for, bursts included; without the start, when users are spawned."""
        begin = min(_SPAWNED_S, self.duration_s / 4)
        width = (self.duration_s - begin) / _STEPS
        steady = sum(self.rate_at(begin + (step + 0.5) * width) for step in range(_STEPS)) * width
        return steady + sum(burst.objects for burst in self.bursts)

    @property
    def creates(self) -> bool:
        """Whether operations or bursts create objects."""
        return bool(self.operations.get("create") or self.bursts)

    @property
    def fleet_actions(self) -> list[Action]:
        return [action for action in self.actions if action.do != BURST]

    @property
    def bursts(self) -> list[Action]:
        return [action for action in self.actions if action.do == BURST]


class Scenario:
    """A scenario as it was written; every field is checked. *where* is for messages."""

    def __init__(self, name: str, document: Mapping[str, object], *, where: str) -> None:
        check_names(where, document, _FIELDS)
        self.name = name
        self.description = str(document.get("description", ""))
        self._where = where
        self._operations = _operations(f"{where}: operations", document.get("operations", {"update": 1}))
        self._load = sequence(f"{where}: load", document.get("load", [{"at": "0%", "rate": "100%"}]))
        self._actions = sequence(f"{where}: actions", document.get("actions", []))
        self.schedule(duration_s=60.0, rate=1.0)

    def schedule(self, *, duration_s: float, rate: float) -> Schedule:
        """The scenario for a run of *duration_s* at *rate* operations per second. Raises InputError."""
        points = [
            self._point(f"{self._where}: load[{index}]", entry, duration_s, rate)
            for index, entry in enumerate(self._load)
        ]
        if not points:
            raise InputError(f"{self._where}: load", [], "is empty", "write one point, or leave it out")
        actions = [
            self._action(f"{self._where}: actions[{index}]", entry, duration_s)
            for index, entry in enumerate(self._actions)
        ]
        return Schedule(
            self.name,
            duration_s,
            dict(self._operations),
            sorted(points, key=lambda point: point.at),
            sorted(actions, key=lambda action: action.at),
        )

    @staticmethod
    def _point(where: str, entry: object, duration_s: float, rate: float) -> Point:
        fields = mapping(where, entry)
        check_names(where, fields, ("at", "rate"))
        wanted = fields.get("rate", "100%")
        part = share(wanted)
        return Point(
            _time(f"{where}.at", fields.get("at", "0%"), duration_s),
            part * rate if part is not None else number(f"{where}.rate", wanted),
        )

    @staticmethod
    def _action(where: str, entry: object, duration_s: float) -> Action:
        fields = mapping(where, entry)
        do = fields.get("do")
        if not isinstance(do, str) or do not in ACTIONS:
            raise InputError(f"{where}.do", do, "is not an action", nearest(str(do), ACTIONS))
        check_names(where, fields, ("at", "do", *ACTIONS[do]))
        if "at" not in fields:
            raise InputError(f"{where}.at", "", "is missing", "write when it happens: 30% or 20s")
        objects = number(f"{where}.objects", fields.get("objects", 5000), at_least=1) if do == BURST else 0
        lasts = fields.get("for", f"{_FOR:.0%}")
        return Action(
            _time(f"{where}.at", fields["at"], duration_s),
            do,
            str(fields.get("replica", "")),
            int(objects),
            _time(f"{where}.for", lasts, duration_s) if "for" in ACTIONS[do] else 0.0,
        )


def built_in() -> list[str]:
    """Names of the scenarios that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def read_schedules(names: Sequence[str], *, duration_s: float, rate: float) -> list[Schedule]:
    """The schedules of the scenarios *names*, each once. Raises InputError."""
    schedules = [read_scenario(name).schedule(duration_s=duration_s, rate=rate) for name in names]
    seen: set[str] = set()
    for schedule in schedules:
        if schedule.scenario in seen:
            raise InputError("SCENARIO", schedule.scenario, "stands twice", "name each scenario once")
        seen.add(schedule.scenario)
    return schedules


def read_scenario(text: str) -> Scenario:
    """The built-in scenario *text*, or the one in the file of that path. Raises InputError."""
    if text in built_in():
        path = _FOLDER / f"{text}.yaml"
        return Scenario(text, read_document("scenario", path), where=text)
    path = Path(text)
    if path.suffix in (".yaml", ".yml"):
        return Scenario(path.stem, read_document("SCENARIO", path), where=str(path))
    raise InputError(
        "SCENARIO", text, "is not a built-in scenario", f"{nearest(text, built_in())} (or name a .yaml file)"
    )


def _operations(where: str, value: object) -> dict[str, int]:
    fields = mapping(where, value)
    check_names(where, fields, OPERATIONS)
    found = {name: int(number(f"{where}.{name}", weight)) for name, weight in fields.items()}
    if not any(found.values()):
        raise InputError(where, dict(fields), "asks for nothing", "give one operation a weight above 0")
    return found


def _time(where: str, value: object, duration_s: float) -> float:
    part = share(value)
    return part * duration_s if part is not None else seconds(where, value)
