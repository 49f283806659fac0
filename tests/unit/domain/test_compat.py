"""B9 and its like: what another host must have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.domain.compat import Finding, Severity, blockers, compare_hosts, refusal
from perdure.domain.errors import PreflightRefused
from perdure.domain.record import HostFacts

PC = HostFacts("a", "boot", "6.18.2-generic", "x86_64", ("avx2", "avx512f", "constant_tsc", "fma", "md_clear", "sse2"), "4.2.1")


def subjects(then: HostFacts, now: HostFacts) -> list[tuple[Severity, str]]:
    return [(finding.severity, finding.subject) for finding in compare_hosts(then, now)]


def test_the_same_host_or_a_better_one() -> None:
    better = replace(PC, hostname="b", cpu_flags=(*PC.cpu_flags, "amx_tile"), criu_version="4.10", kernel_release="7.0")
    assert compare_hosts(PC, PC) == compare_hosts(PC, better) == []


@pytest.mark.parametrize("flag", ["avx512f", "fma"])
def test_a_missing_instruction_is_named(flag: str) -> None:
    now = replace(PC, cpu_flags=tuple(one for one in PC.cpu_flags if one != flag))
    assert subjects(PC, now) == [(Severity.BLOCKER, flag)]


def test_a_missing_mitigation_does_not_matter() -> None:
    assert compare_hosts(PC, replace(PC, cpu_flags=("avx2", "avx512f", "fma", "sse2"))) == []


def test_every_arm_feature_is_an_instruction() -> None:
    arm = replace(PC, machine="aarch64", cpu_flags=("asimd", "sve"))
    assert subjects(arm, replace(arm, cpu_flags=("asimd",))) == [(Severity.BLOCKER, "sve")]


def test_another_kind_of_machine() -> None:
    assert subjects(PC, replace(PC, machine="aarch64", cpu_flags=())) == [(Severity.BLOCKER, "aarch64")]


@pytest.mark.parametrize(
    ("version", "fits"), [("4.2", False), ("4.2.0", False), ("4.2.1", True), ("4.10", True), ("5", True), ("", False)]
)
def test_an_older_criu(version: str, fits: bool) -> None:
    assert (not blockers(compare_hosts(PC, replace(PC, criu_version=version)))) is fits


@pytest.mark.parametrize(("release", "fits"), [("6.18.0", True), ("6.17.9", False), ("6.9", False), ("10.0", True)])
def test_an_older_linux_is_a_warning(release: str, fits: bool) -> None:
    found = compare_hosts(PC, replace(PC, kernel_release=release))
    assert blockers(found) == []
    assert (found == []) is fits


@given(st.frozensets(st.sampled_from(PC.cpu_flags)), st.frozensets(st.sampled_from(PC.cpu_flags)))
def test_more_flags_never_hurt(some: frozenset[str], more: frozenset[str]) -> None:
    few, many = replace(PC, cpu_flags=tuple(some)), replace(PC, cpu_flags=tuple(some | more))
    assert compare_hosts(few, many) == []
    assert len(compare_hosts(PC, many)) <= len(compare_hosts(PC, few))


def test_refusals() -> None:
    warning = Finding(Severity.WARNING, "/a", "A.")
    changed = Finding(Severity.BLOCKER, "/b", "B.", acceptable=True)
    flag = Finding(Severity.BLOCKER, "avx", "C.")
    assert refusal([]) is refusal([warning]) is refusal([changed], accept_changed_files=True) is None
    assert isinstance(refusal([warning, changed]), PreflightRefused)
    assert blockers([warning, changed, flag], accept_changed_files=True) == [flag]
