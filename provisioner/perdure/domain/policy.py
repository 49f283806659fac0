"""What a kernel's owner wants done, and when."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from .errors import BadRequest

CHOICES: dict[str, tuple[str, ...]] = {
    "snapshots_at_shutdown": ("drop", "keep"),
    "engine": ("auto", "live", "classic"),
}
RANGES: dict[str, tuple[float, float]] = {
    "stall_budget": (0.0001, 1.0),
    "loss_budget_s": (1.0, sys.float_info.max),
    "mean_time_between_failures_s": (60.0, sys.float_info.max),
    "preemption_deadline_s": (0.0, 600.0),
}
"""Both ends are allowed. Every other number may be anything from 0 on."""
_ANY = (0.0, sys.float_info.max)


@dataclass(frozen=True)
class Policy:
    """Settings of one kernel; each is a trait of the provisioner, so kernel specs and config files can set it."""

    snapshot_interval_s: float = 300.0
    """Longest time between two snapshots of a kernel that works; 0 = none by time. What a snapshot costs may make it shorter
    (`domain.pace`), and longer only where the stall budget forbids it."""
    loss_budget_s: float = 300.0
    """At most so much work is lost with the kernel: what was done since the last snapshot, and while that one was stored."""
    stall_budget: float = 0.01
    """The kernel stands still for at most this share of the time, on account of snapshots that were not asked for."""
    mean_time_between_failures_s: float = 86400.0
    """Assumed: nobody can measure it in time. A day is what a preemptible machine or a crowded shared one comes to."""
    after_cell_work_s: float = 10.0
    """A cell has ended: snapshot at once when this much running time would be lost …"""
    after_cell_growth_bytes: int = 64 << 20
    """… or memory has changed by this much …"""
    after_cell_age_s: float = 60.0
    """… or the last snapshot is this old."""
    min_gap_s: float = 5.0
    """Never two snapshots that were not asked for closer than this."""
    only_when_asked: bool = False
    """No snapshot by itself at all: neither after the first cell, nor by time, nor when the agent is told to end."""
    preemption_deadline_s: float = 25.0
    """When the agent is told to end (SIGTERM: the machine is about to go), a last snapshot has so long; 0 = none is taken. Slurm,
    Kubernetes and Google's preemptible machines give 30 seconds."""
    engine: Literal["auto", "live", "classic"] = "auto"
    """How memory is saved: `live` while the kernel goes on, `classic` while it stands still, `auto`: live where that works."""
    restore_on_death: bool = True
    max_restores: int = 3
    """One generation whose kernel dies again and again within `stable_s` is given up after so many restores."""
    stable_s: float = 60.0
    snapshots_at_shutdown: Literal["drop", "keep"] = "drop"
    keep_last: int = 3
    """Snapshots that stay: the newest so many (one always), …"""
    keep_hourly: int = 6
    """… the newest of each of the last so many hours that have one, …"""
    keep_daily: int = 7
    """… the newest of each of the last so many days that have one, …"""
    keep_bytes: int = 0
    """… as long as they need no more bytes than this in the repository; 0 = no limit. The newest stays in any case."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Policy:
        """Unknown names are ignored (a newer client may send them); values of the wrong kind raise BadRequest."""
        known: dict[str, Any] = {}
        for field in fields(cls):
            if field.name not in data:
                continue
            known[field.name] = _checked(field.name, data[field.name], field.default)
        return cls(**known)


def _checked(name: str, value: Any, default: object) -> Any:
    """`value`, when it is of the kind of `default` and within bounds. Raises BadRequest."""
    if isinstance(default, bool):
        good, allowed = isinstance(value, bool), "true or false"
    elif isinstance(default, (int, float)):
        least, most = RANGES.get(name, _ANY)
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
        allowed = f"a number, {least:g} or more" + (f", {most:g} at most" if most < sys.float_info.max else "")
    else:
        good, allowed = value in CHOICES[name], " or ".join(CHOICES[name])
    if not good:
        raise BadRequest(f"The policy's {name} can't be {value!r}.", hint=f"It is {allowed}; the default is {default!r}.")
    return value
