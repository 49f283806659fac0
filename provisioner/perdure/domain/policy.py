"""What a kernel's owner wants done, and when."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from .errors import BadRequest


@dataclass(frozen=True)
class Policy:
    """Settings of one kernel; each is a trait of the provisioner, so kernel specs and config files can set it."""

    snapshot_interval_s: float = 300.0
    """Longest time between two snapshots of a kernel that works; 0 = none by time."""
    after_cell_work_s: float = 10.0
    """A cell has ended: snapshot at once when this much running time would be lost …"""
    after_cell_growth_bytes: int = 64 << 20
    """… or memory has changed by this much …"""
    after_cell_age_s: float = 60.0
    """… or the last snapshot is this old."""
    min_gap_s: float = 5.0
    """Never two snapshots that were not asked for closer than this."""
    restore_on_death: bool = True
    max_restores: int = 3
    """One generation whose kernel dies again and again within `stable_s` is given up after so many restores."""
    stable_s: float = 60.0
    snapshots_at_shutdown: Literal["drop", "keep"] = "drop"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Policy:
        """Unknown names are ignored (a newer client may send them); values of the wrong kind raise BadRequest."""
        known: dict[str, Any] = {}
        for field in fields(cls):
            if field.name not in data:
                continue
            value, default = data[field.name], field.default
            if isinstance(default, bool):
                good = isinstance(value, bool)
            elif isinstance(default, (int, float)):
                good = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
            else:
                good = value in ("drop", "keep")
            if not good:
                raise BadRequest(f"The policy's {field.name} can't be {value!r}.", hint=f"The default is {default!r}.")
            known[field.name] = value
        return cls(**known)
