"""Can a snapshot of that host be restored on this one? What is said before anything is tried."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .errors import PreflightRefused
from .record import HostFacts

_X86 = ("x86_64", "i686")
_X86_INSTRUCTIONS = re.compile(
    r"mmx(ext)?|3dnow(ext|prefetch)?|fxsr(_opt)?|sse\w*|ssse3|pni|avx\w*|amx_\w+|fma4?|f16c|xop|tbm|bmi[12]|abm|popcnt|movbe|adx"
    r"|aes|vaes|v?pclmulqdq|gfni|sha_ni|sha512|sm[34]|rdrand|rdseed|rdpid|rdpru|rdtscp|cx8|cx16|cmov|lahf_lm|fsgsbase"
    r"|clflush(opt)?|clwb|clzero|cldemote|movdiri|movdir64b|enqcmd|serialize|waitpkg|erms|fsrm|fzrm|fsrs|fsrc|hle|rtm|tsxldtrk"
    r"|xsave\w*|xgetbv1|pku|ospke|user_shstk|cmpccxadd|raoint|mwaitx|monitorx|lwp|la57|lm|nx|fpu|tsc"
)
"""Of a PC's flags, those that stand for instructions or registers that a program may use. The others (mitigations, power
management, virtualization) differ between hosts of one kind and don't matter. On arm64 every one is an instruction."""
_MOST_NAMED = 8


class Severity(StrEnum):
    BLOCKER = "blocker"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    severity: Severity
    subject: str
    """The file, flag, program or user that it is about; several are separated by spaces."""
    sentence: str
    hint: str = ""
    acceptable: bool = False
    """A blocker that --accept-changed-files overrules."""


def compare_hosts(then: HostFacts, now: HostFacts) -> list[Finding]:
    """What of the snapshot's host is missing on this one."""
    found: list[Finding] = []
    if then.machine != now.machine:
        sentence = f"The snapshot was taken on a {then.machine} machine, and this is a {now.machine} one."
        return [Finding(Severity.BLOCKER, now.machine, sentence, hint="Restore on a machine of the same kind.")]
    missing = [flag for flag in sorted(set(then.cpu_flags) - set(now.cpu_flags)) if _matters(flag, then.machine)]
    if missing:
        named = ", ".join(missing[:_MOST_NAMED]) + (f" and {len(missing) - _MOST_NAMED} more" if missing[_MOST_NAMED:] else "")
        sentence = f"This processor lacks what the kernel may use: {named}."
        hint = f"Restore on a host whose processor is like that of {then.hostname}, or newer."
        found.append(Finding(Severity.BLOCKER, " ".join(missing), sentence, hint))
    if _numbers(now.criu_version) < _numbers(then.criu_version):
        sentence = f"The snapshot was written by CRIU {then.criu_version}, and CRIU {now.criu_version} here is older."
        hint = "`perdure engine install` brings a newer one."
        found.append(Finding(Severity.BLOCKER, f"criu {now.criu_version}", sentence, hint))
    if _numbers(now.kernel_release)[:2] < _numbers(then.kernel_release)[:2]:
        sentence = f"Linux {now.kernel_release} here is older than {then.kernel_release}, where the snapshot was taken."
        hint = "What the kernel used of the newer one would be missing."
        found.append(Finding(Severity.WARNING, f"linux {now.kernel_release}", sentence, hint))
    return found


def blockers(findings: Sequence[Finding], *, accept_changed_files: bool = False) -> list[Finding]:
    """Those that forbid the restore."""
    return [one for one in findings if one.severity is Severity.BLOCKER and not (one.acceptable and accept_changed_files)]


def refusal(findings: Sequence[Finding], *, accept_changed_files: bool = False) -> PreflightRefused | None:
    """The error to raise, or None when nothing forbids the restore."""
    found = blockers(findings, accept_changed_files=accept_changed_files)
    if not found:
        return None
    more = f" ({len(found) - 1} more like this in the details.)" if found[1:] else ""
    detail = "\n".join(f"{one.sentence} {one.hint}".rstrip() for one in found)
    return PreflightRefused(found[0].sentence, hint=found[0].hint + more, detail=detail)


def _matters(flag: str, machine: str) -> bool:
    return machine not in _X86 or _X86_INSTRUCTIONS.fullmatch(flag) is not None


def _numbers(version: str) -> tuple[int, ...]:
    """The dotted numbers that a version begins with; nothing for one that is unknown, which is older than all."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
