"""The settings of a checkpointed kernel: the fields of `domain.policy.Policy` as traits.

A kernel spec sets them in `metadata.kernel_provisioner.config`, a Jupyter configuration file as
`c.PerdureProvisioner.snapshot_interval_s = 60`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from traitlets import Bool, Enum, Float, HasTraits, Int, Unicode

from perdure.domain.policy import CHOICES, RANGES, Policy


def _number(name: str, help: str) -> Float[float, float | int]:
    """The trait of a field that has bounds of its own."""
    least, most = RANGES[name]
    return Float(getattr(Policy, name), min=least, max=most, help=help).tag(config=True)


class PolicyTraits(HasTraits):
    """Each trait is the field of the same name; `policy` is all of them."""

    agent = Unicode(
        help="Address of the agent, unix:///path. Empty: $PERDURE_AGENT, else the machine's own (started if this server is root)."
    ).tag(config=True)
    repository = Unicode(
        help="Where snapshots are kept, file:///path or s3://bucket/prefix. Empty: $PERDURE_REPOSITORY, else the agent's own."
    ).tag(config=True)
    snapshot_interval_s = Float(
        Policy.snapshot_interval_s,
        min=0,
        help="Longest time in seconds between two snapshots of a working kernel; 0 = none by time.",
    ).tag(config=True)
    loss_budget_s = _number("loss_budget_s", "Lose at most this many seconds of work with the kernel.")
    stall_budget = _number("stall_budget", "Freeze the kernel for at most this share of the time (0.01: one percent).")
    mean_time_between_failures_s = _number(
        "mean_time_between_failures_s",
        "Assumed seconds between two failures of this machine; the shorter, the more often a kernel is saved.",
    )
    after_cell_work_s = Float(
        Policy.after_cell_work_s, min=0, help="Snapshot at the end of a cell when this many seconds of work would be lost …"
    ).tag(config=True)
    after_cell_growth_bytes = Int(
        Policy.after_cell_growth_bytes, min=0, help="… or when memory has changed by this many bytes …"
    ).tag(config=True)
    after_cell_age_s = Float(Policy.after_cell_age_s, min=0, help="… or when the last snapshot is this many seconds old.").tag(
        config=True
    )
    min_gap_s = Float(Policy.min_gap_s, min=0, help="Least time in seconds between two snapshots that nobody asked for.").tag(
        config=True
    )
    only_when_asked = Bool(
        Policy.only_when_asked,
        help="Take no snapshot that nobody asked for, not even after the first cell or at the agent's end.",
    ).tag(config=True)
    preemption_deadline_s = _number(
        "preemption_deadline_s", "Seconds for a last snapshot when the agent is told to end; 0 = none is taken."
    )
    engine: Enum[Any] = Enum(
        CHOICES["engine"],
        Policy.engine,
        help="Save memory while the kernel goes on (live), while it is frozen (classic), or auto.",
    ).tag(config=True)
    restore_on_death = Bool(
        Policy.restore_on_death, help="Bring a kernel that dies back from its newest good snapshot by itself."
    ).tag(config=True)
    max_restores = Int(
        Policy.max_restores,
        min=0,
        help="Give a snapshot up when its kernel has died again this often, each time within `stable_s`.",
    ).tag(config=True)
    stable_s = Float(Policy.stable_s, min=0, help="A restored kernel that lives for this many seconds is good.").tag(config=True)
    snapshots_at_shutdown: Enum[Any] = Enum(
        CHOICES["snapshots_at_shutdown"],
        Policy.snapshots_at_shutdown,
        help="What becomes of a kernel's snapshots when it is shut down.",
    ).tag(config=True)
    keep_last = Int(Policy.keep_last, min=0, help="Keep the newest so many snapshots (one is always kept) …").tag(config=True)
    keep_hourly = Int(Policy.keep_hourly, min=0, help="… the newest one of each of the last so many hours that have any …").tag(
        config=True
    )
    keep_daily = Int(Policy.keep_daily, min=0, help="… the newest one of each of the last so many days that have any …").tag(
        config=True
    )
    keep_bytes = Int(
        Policy.keep_bytes, min=0, help="… as long as they need no more bytes than this in the repository; 0 = no limit."
    ).tag(config=True)

    @property
    def policy(self) -> Policy:
        return Policy(**{field.name: getattr(self, field.name) for field in fields(Policy)})
