"""Input values of a ring: names, weights, eps, virtual nodes; checked, and converted to integers.

Owns limits and units. Numbers are read as the decimals that are written (0.05 is 5/100, not the nearest binary
fraction), so that every language gets the same integers.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Final

from ring.errors import InvalidRing
from ring.tokens import WEIGHT_UNIT

Number = int | float | Decimal | Fraction

EPS_UNIT: Final = 1_000_000
MAX_EPS: Final = 1000
MAX_WEIGHT: Final = 1000
MAX_VIRTUAL_NODES: Final = 100_000
MAX_TOKENS: Final = 10_000_000
"""Of all members together: beyond it a ring takes minutes to build and hundreds of MB."""


def parse_eps(eps: Number) -> int:
    """*eps* in millionths."""
    remedy = f"write a decimal from 0.000001 to {MAX_EPS}, such as 0.05, with at most six places"
    units = _units("eps", eps, EPS_UNIT, remedy)
    if not 1 <= units <= MAX_EPS * EPS_UNIT:
        raise InvalidRing("eps", eps, "is out of range", remedy)
    return units


def parse_weight(member: str, weight: Number) -> int:
    """*weight* in thousandths; 0 means no place on the ring."""
    field = f"members[{member}].weight"
    remedy = (
        f"write a decimal from 0.001 to {MAX_WEIGHT} with at most three places, or 0 for no place on the ring"
    )
    units = _units(field, weight, WEIGHT_UNIT, remedy)
    if not 0 <= units <= MAX_WEIGHT * WEIGHT_UNIT:
        raise InvalidRing(field, weight, "is out of range", remedy)
    return units


def check_member(member: object) -> str:
    """*member* if it can be the name of a member: any text that has a UTF-8 form."""
    remedy = "name each member with a non-empty text, such as its pod's name"
    if not isinstance(member, str) or not member:
        raise InvalidRing("members", member, "is not a member's name", remedy)
    try:
        member.encode()
    except UnicodeEncodeError as error:
        raise InvalidRing("members", member, f"has no UTF-8 form ({error.reason})", remedy) from error
    return member


def check_virtual_nodes(virtual_nodes: object) -> int:
    """*virtual_nodes* if a member can have that many."""
    if (
        not isinstance(virtual_nodes, int)
        or isinstance(virtual_nodes, bool)
        or not 1 <= virtual_nodes <= MAX_VIRTUAL_NODES
    ):
        remedy = f"write a whole number from 1 to {MAX_VIRTUAL_NODES}, such as 1000"
        raise InvalidRing("virtualNodes", virtual_nodes, "is not a number of virtual nodes", remedy)
    return virtual_nodes


def check_total_tokens(total: int, virtual_nodes: int) -> None:
    """Refuse a ring that would not fit into memory."""
    if total > MAX_TOKENS:
        raise InvalidRing(
            "virtualNodes",
            virtual_nodes,
            f"makes {total} tokens for these members and weights, and a ring holds {MAX_TOKENS}",
            "use fewer virtual nodes or smaller weights",
        )


def _units(field: str, value: object, unit: int, remedy: str) -> int:
    """*value* as a whole number of 1/*unit*."""
    if not isinstance(value, int | float | Decimal | Fraction) or isinstance(value, bool):
        raise InvalidRing(field, value, "is not a number", remedy)
    try:
        units = Fraction(str(value)) * unit
    except ValueError as error:  # nan, inf
        raise InvalidRing(field, value, "is not a finite number", remedy) from error
    if units.denominator != 1:
        raise InvalidRing(field, value, "has too many decimal places", remedy)
    return units.numerator
