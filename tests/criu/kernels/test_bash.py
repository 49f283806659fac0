"""Bash: a Python kernel whose state is in a child on a pseudo-terminal."""

from __future__ import annotations

import sys

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


@pytest.fixture
def bash(start_kernel) -> LiveKernel:  # type: ignore[no-untyped-def]
    kernel: LiveKernel = start_kernel(argv=(sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"))
    return kernel


def test_a_shell_survives(bash: LiveKernel, survives, is_interrupted) -> None:  # type: ignore[no-untyped-def]
    bash.run(
        "mine=$RANDOM-$RANDOM; list=(a 'b c'); double() { echo $(($1 * 2)); }; mkdir here; cd here; umask 027; export SEEN=yes"
    )
    facts = 'echo $mine $$ $PWD ${#list[@]} "${list[1]}"; double 21; umask; env | grep ^SEEN='
    expected = bash.run(facts)
    assert expected.splitlines()[1:] == ["42", "0027", "SEEN=yes"]

    def check() -> None:
        assert bash.run(facts) == expected

    survives(bash, check, lambda: bash.run("mine=0; unset -f double; cd /"))
    is_interrupted(bash, "echo in; sleep 600")
    check()


def test_a_running_cell_goes_on(bash: LiveKernel) -> None:
    cell = bash.begin("echo in; for n in $(seq 40); do sleep .1; done; echo $n")
    bash.follow(cell, lambda one: "in" in "".join(one.outputs))
    snapshot = bash.snapshot()
    bash.kill()
    assert cell.reply is None
    bash.restore(snapshot)
    assert bash.finish(cell).split() == ["in", "40"]
