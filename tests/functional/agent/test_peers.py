"""Who may ask for what. The second user's questions come from a process that runs as that user."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import perdure
import pytest
from perdure.domain.ids import kernel_id
from perdure.domain.phases import Phase

from tests.criu.live_kernel import python_for
from tests.functional.agent import asking
from tests.functional.agent.workplace import NOBODY, LiveKernel, Workplace

pytestmark = pytest.mark.criu
GROUP = "nogroup"


def ask_as_nobody(workplace: Workplace, *words: str) -> str:
    python, env = python_for(NOBODY)
    # Theirs is not our Python: they may enter neither our home nor the checkout.
    theirs = workplace.folder / "theirs"
    if not theirs.exists():
        _copy(Path(perdure.__file__).parent, theirs / "perdure")
        (theirs / "asking.py").write_text(Path(asking.__file__).read_text())
    done = subprocess.run(
        [
            "setpriv", f"--reuid={NOBODY.uid}", f"--regid={NOBODY.gid}", "--clear-groups", "--",
            python, str(theirs / "asking.py"), workplace.address, *words,
        ],
        env={"PATH": os.environ["PATH"], **env, "PYTHONPATH": f"{theirs}:{sysconfig.get_path('purelib')}"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _copy(source: Path, target: Path) -> None:
    for path in source.rglob("*.py"):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())


def test_without_a_group_only_root_gets_in(agent: Workplace) -> None:
    assert ask_as_nobody(agent, "list", "any") == "agent-unreachable"


def test_a_user_sees_and_touches_only_the_own_kernels(workplace: Workplace) -> None:
    workplace.start_agent(f"--group={GROUP}")
    assert os.stat(workplace.socket).st_mode & 0o777 == 0o660
    roots = workplace.kernel()
    roots.run("x = 1")
    roots.snapshot()

    started = json.loads(ask_as_nobody(workplace, "start", "theirs"))
    assert (started["phase"], started["owner"]["uid"]) == ("running", NOBODY.uid)
    uids = Path(f"/proc/{started['pid']}/status").read_text()
    assert f"Uid:\t{NOBODY.uid}\t{NOBODY.uid}\t{NOBODY.uid}\t{NOBODY.uid}" in uids
    assert started["repository"].endswith(f"/repository/{NOBODY.uid}")

    assert json.loads(ask_as_nobody(workplace, "list", "any")) == ["theirs"]
    for what in ("show", "wait", "signal", "snapshot", "restore", "kill"):
        assert (what, ask_as_nobody(workplace, what, roots.id)) == (what, "not-found")
    assert ask_as_nobody(workplace, "forget", roots.id) == "done"  # as for one that never was
    assert ask_as_nobody(workplace, "start", roots.id) == "conflict"
    _is_well(roots)

    assert {one.kernel_id for one in workplace.ask(lambda client: client.kernels())} == {roots.id, "theirs"}
    assert json.loads(ask_as_nobody(workplace, "snapshot", "theirs"))["generation"] == 1
    theirs = workplace.ask(lambda client: client.kernel(kernel_id("theirs")))
    assert [one.generation for one in theirs.generations] == [1]
    assert ask_as_nobody(workplace, "forget", "theirs") == "done"
    assert workplace.repository(NOBODY.uid).kernels() == []


def test_only_root_names_repositories_and_owners(workplace: Workplace) -> None:
    allowed = workplace.folder / "allowed"
    workplace.start_agent(f"--group={GROUP}", f"--AgentApp.allowed_repositories={allowed.as_uri()}")
    assert ask_as_nobody(workplace, "start-at", "one", (workplace.folder / "mine").as_uri()) == "forbidden"
    assert ask_as_nobody(workplace, "start-at", "one", (workplace.state / "repository" / "0").as_uri()) == "forbidden"
    assert ask_as_nobody(workplace, "start-as-root", "one") == "forbidden"
    assert workplace.ask(lambda client: client.kernels()) == []
    assert not (workplace.folder / "mine").exists()
    own = f"{(workplace.state / 'repository').as_uri()}/{NOBODY.uid}"
    for url, kept in ((own, own), (allowed.as_uri(), f"{allowed.as_uri()}/{NOBODY.uid}")):
        assert json.loads(ask_as_nobody(workplace, "start-at", "one", url))["repository"] == kept
        ask_as_nobody(workplace, "forget", "one")

    elsewhere = (workplace.folder / "elsewhere").as_uri()
    live = workplace.kernel(repository=elsewhere, owner=None)
    assert live.status().repository == elsewhere
    live.snapshot()


def _is_well(kernel: LiveKernel) -> None:
    assert kernel.run("print(x)") == "1"
    assert kernel.status().phase is Phase.RUNNING
    assert kernel.status().generations
