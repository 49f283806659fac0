"""What every test sees: what this machine can test, and a look for litter at the end."""

from __future__ import annotations

import os

import pytest

from tests.litter import Litter
from tests.machine import Ability, abilities

REQUIRED = frozenset(name.strip() for name in os.environ.get("PERDURE_REQUIRE", "").split(",") if name.strip())
"""Markers whose tests must run: where the machine can't, they fail instead of being skipped (CI says so)."""

_abilities = pytest.StashKey[dict[str, Ability]]()
_litter = pytest.StashKey[Litter]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_abilities] = abilities()
    config.stash[_litter] = Litter.start()


def pytest_report_header(config: pytest.Config) -> list[str]:
    found = config.stash[_abilities]
    return [f"perdure: {name}: {ability}" for name, ability in found.items()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine can't do, saying why."""
    found = config.stash[_abilities]
    for item in items:
        for name, ability in found.items():
            if item.get_closest_marker(name) is None or ability.there or name in REQUIRED:
                continue
            item.add_marker(pytest.mark.skip(reason=f"needs {name}: {ability.detail}"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, ability in item.config.stash[_abilities].items():
        if item.get_closest_marker(name) is not None and not ability.there:
            pytest.fail(f"PERDURE_REQUIRE asks for {name}, but: {ability.detail}", pytrace=False)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Litter fails the run: a test that leaves a process or a mount behind has found a bug or is one."""
    litter = session.config.stash[_litter]
    factory = getattr(session.config, "_tmp_path_factory", None)
    litter.look(None if factory is None else factory.getbasetemp())
    if litter.ours and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    litter = config.stash[_litter]
    if litter.ours:
        terminalreporter.section("left behind by the tests", sep="=", red=True, bold=True)
        for line in litter.ours:
            terminalreporter.line(line)
    if litter.unsure:
        terminalreporter.section("new since the start, perhaps not from these tests")
        for line in litter.unsure:
            terminalreporter.line(line)
