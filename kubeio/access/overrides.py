"""Flags that replace entries of a kubeconfig."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubeio.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Values that replace those of a kubeconfig, as kubectl's flags of the same names do. Empty: not given."""

    cluster: str = ""
    user: str = ""
    server: str = ""
    as_user: str = ""
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()

    @property
    def impersonation(self) -> dict[str, object]:
        """Fields of a kubeconfig's user entry. Raises: InputError for a group or uid without a user."""
        if not self.as_user and (self.as_uid or self.as_groups):
            raise InputError(
                "--as", "", "is missing beside --as-group or --as-uid", "name the user to act as"
            )
        fields = {"as": self.as_user, "as-uid": self.as_uid, "as-groups": list(self.as_groups)}
        return {name: value for name, value in fields.items() if value} if self.as_user else {}


NONE: Final = Overrides()
