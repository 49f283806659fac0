"""Which snapshots stay, which go, and why. Pure.

What is kept: the newest ones, one per hour and one per day for a while back (the newest of each hour or day that has one, as
restic does: hours without a snapshot don't count), all that fit into a budget of bytes. A kernel's newest snapshot always stays,
and so does one that somebody needs. Bytes are shared between snapshots, so what a snapshot's going frees depends on which
others stay: `shares` says what each group of them needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from .ids import Generation, KernelId
from .policy import Policy

Shares = Mapping[frozenset[Generation], int]
"""Stored bytes that exactly these generations of one kernel need."""


@dataclass(frozen=True)
class Rules:
    """How many stay. `bytes`: one kernel's budget; 0 means that there is none."""

    last: int = 3
    hourly: int = 6
    daily: int = 7
    bytes: int = 0

    @classmethod
    def of(cls, policy: Policy) -> Rules:
        return cls(int(policy.keep_last), int(policy.keep_hourly), int(policy.keep_daily), int(policy.keep_bytes))


@dataclass(frozen=True)
class Snapshot:
    """`created`: seconds since 1970, None when that is unknown. `pinned`: why it must stay, if it must. `damaged`: it is lost."""

    generation: Generation
    created: float | None = None
    pinned: str = ""
    damaged: bool = False


@dataclass(frozen=True)
class Verdict:
    """What becomes of one snapshot; `why` is a clause: "one of the last 3", "over the budget of …"."""

    generation: Generation
    keep: bool
    why: str
    fixed: bool = False
    """No budget removes it."""


def judge(snapshots: Iterable[Snapshot], rules: Rules, shares: Shares | None = None) -> list[Verdict]:
    """One kernel's snapshots, ascending. Without `shares` the budget is left out."""
    newest_first = sorted(snapshots, key=lambda one: one.generation, reverse=True)
    whole = [one for one in newest_first if not one.damaged]
    reasons: dict[Generation, str] = {}
    for one in whole[: max(rules.last, 1)]:
        reasons.setdefault(one.generation, f"one of the last {max(rules.last, 1)}")
    for number, unit, period in ((rules.hourly, "hour", _hour), (rules.daily, "day", _day)):
        for generation in _one_each(whole, number, period):
            reasons.setdefault(generation, f"the newest of its {unit}")
    verdicts = [_verdict(one, rules, newest_first, whole, reasons) for one in reversed(newest_first)]
    if shares is not None and rules.bytes:
        return fit({KernelId(""): verdicts}, {KernelId(""): shares}, rules.bytes, "of this kernel")[KernelId("")]
    return verdicts


def fit(
    verdicts: Mapping[KernelId, Sequence[Verdict]],
    shares: Mapping[KernelId, Shares],
    budget: int,
    whose: str,
    ages: Mapping[tuple[KernelId, Generation], float] | None = None,
) -> dict[KernelId, list[Verdict]]:
    """The same with the oldest ones removed until all kernels together need at most `budget` bytes, or nothing more may go.

    `ages`: when each was created, to compare snapshots of different kernels; the lower goes first.
    """
    result = {kernel: {one.generation: one for one in of} for kernel, of in verdicts.items()}
    when = ages or {}
    candidates = sorted(
        ((kernel, one.generation) for kernel, of in verdicts.items() for one in of if one.keep and not one.fixed),
        key=lambda one: (when.get(one, 0.0), one[1], one[0]),
    )
    for kernel, generation in candidates:
        if sum(needed(result[other].values(), shares.get(other, {})) for other in result) <= budget:
            break
        before = result[kernel][generation]
        result[kernel][generation] = replace(before, keep=False, why=f"over the budget {whose}, {budget} bytes")
    return {kernel: [of[generation] for generation in sorted(of)] for kernel, of in result.items()}


def needed(verdicts: Iterable[Verdict], shares: Shares) -> int:
    """Bytes that those which stay need."""
    kept = {one.generation for one in verdicts if one.keep}
    return sum(size for group, size in shares.items() if group & kept)


def _verdict(
    one: Snapshot, rules: Rules, newest_first: Sequence[Snapshot], whole: Sequence[Snapshot], reasons: Mapping[Generation, str]
) -> Verdict:
    if one == newest_first[0]:
        return Verdict(one.generation, True, "the newest", fixed=True)
    if whole and one == whole[0]:
        return Verdict(one.generation, True, "the newest that is whole", fixed=True)
    if one.pinned:
        return Verdict(one.generation, True, one.pinned, fixed=True)
    if one.damaged:
        newer = sum(other.generation > one.generation for other in whole)
        if newer >= max(rules.last, 1):
            return Verdict(one.generation, False, f"it is damaged, and {newer} newer ones are whole")
        return Verdict(one.generation, True, "it is damaged, but few newer ones are whole", fixed=True)
    if one.generation in reasons:
        return Verdict(one.generation, True, reasons[one.generation])
    if one.created is None:
        return Verdict(one.generation, False, f"not one of the last {max(rules.last, 1)}, and its age is unknown")
    return Verdict(
        one.generation, False, f"not one of the last {max(rules.last, 1)}, nor of {rules.hourly} hours, nor of {rules.daily} days"
    )


def _one_each(newest_first: Sequence[Snapshot], number: int, period: Callable[[float], str]) -> list[Generation]:
    """The newest of each of the last `number` periods that have one."""
    found: dict[str, Generation] = {}
    for one in newest_first:
        if one.created is None:
            continue
        name = period(one.created)
        if name not in found and len(found) < number:
            found[name] = one.generation
    return list(found.values())


def _hour(created: float) -> str:
    return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d %H")


def _day(created: float) -> str:
    return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d")
