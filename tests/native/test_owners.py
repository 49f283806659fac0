"""Who dies with whom: the sandbox, its starter, the agent. And starts that go wrong leave nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from shim_driver import NOBODY, Shim, gone, in_namespace, mentioning, namespace, python, until

pytestmark = pytest.mark.root

AGENT = """
import os, subprocess, sys, time
lifeline, command = sys.argv[1] == "lifeline", sys.argv[2:]
read, write = os.pipe()
if lifeline:
    command[command.index("--"):command.index("--")] = ["--lifeline", str(read)]
outer = subprocess.Popen(command, pass_fds=[read] if lifeline else [], stdin=subprocess.DEVNULL)
print(outer.pid, flush=True)
time.sleep(1000)
"""

TICKER = "import time\nfor n in range(10**6):\n    print(n, flush=True)\n    time.sleep(0.02)"


class Agent:
    """A process that starts a sandbox and can be killed."""

    def __init__(self, shim: Shim, lifeline: bool) -> None:
        self.process = subprocess.Popen(
            [*python(AGENT), "lifeline" if lifeline else "none", *shim.command(python(TICKER))],
            env=shim.outer_env,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.outer = int(self.process.stdout.readline())
        self.process.stdout.close()
        until(lambda: shim.said("ready") is not None, "ready")
        shim.namespaces.add(namespace(shim.pid) or "")
        until(lambda: shim.log_file.exists() and shim.log().count("\n") > 2, "first ticks")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def ticks(shim: Shim) -> int:
    return shim.log().count("\n")


def goes_on(shim: Shim) -> bool:
    seen = ticks(shim)
    return until(lambda: ticks(shim) > seen + 3, "more ticks")


def test_sandbox_survives_its_agent(shim: Shim) -> None:
    with Agent(shim, lifeline=False) as agent:
        agent.kill()
        assert goes_on(shim)
        os.kill(shim.kernel, signal.SIGTERM)
        until(lambda: gone(shim.pid))
        assert shim.lines()[-1] == "signal 15"
        until(lambda: gone(agent.outer), "end of the starter")


@pytest.mark.parametrize("victims", ["starter", "starter and agent"])
def test_sandbox_survives_its_starter(shim: Shim, victims: str) -> None:
    with Agent(shim, lifeline=False) as agent:
        os.kill(agent.outer, signal.SIGKILL)
        if victims != "starter":
            agent.kill()
        assert goes_on(shim)
        name = namespace(shim.pid)
        os.kill(shim.kernel, signal.SIGKILL)
        until(lambda: gone(shim.pid))
        assert in_namespace(name) == []
        assert shim.lines()[-1] == "signal 9"


@pytest.mark.parametrize("victim", ["agent", "starter"])
def test_lifeline_ends_everything(shim: Shim, victim: str) -> None:
    with Agent(shim, lifeline=True) as agent:
        assert goes_on(shim)
        name = namespace(shim.pid)
        if victim == "agent":
            agent.kill()
        else:
            os.kill(agent.outer, signal.SIGKILL)
        until(lambda: gone(shim.pid))
        assert in_namespace(name) == []
        if victim == "agent":
            assert shim.lines()[-1] == "signal 9"


def test_lifeline_of_an_empty_sandbox(shim: Shim) -> None:
    read, write = os.pipe()
    shim.start(options=["--lifeline", str(read)], pass_fds=[read])
    os.close(read)
    assert not shim.ended()
    os.close(write)
    assert shim.wait() == 137


def test_bytes_on_the_lifeline_mean_nothing(shim: Shim) -> None:
    read, write = os.pipe()
    shim.start("sleep", "1000", options=["--lifeline", str(read)], pass_fds=[read])
    os.close(read)
    os.write(write, b"hello" * 100)
    os.kill(shim.pid, signal.SIGTERM)
    assert shim.wait() == 128 + 15  # by the signal, not by the lifeline
    assert shim.lines()[-1] == "signal 15"
    os.close(write)


@pytest.mark.parametrize("lifeline", [False, True])
def test_starter_killed_at_any_moment_of_the_start(shim: Shim, lifeline: bool) -> None:
    """Either a sandbox is there and says so, or nothing is."""
    for spin in range(30):
        shim.status_file.unlink(missing_ok=True)
        read, write = os.pipe()
        options = ["--lifeline", str(read)] if lifeline else []
        outer = subprocess.Popen(
            shim.command(["sleep", "1000"], options), pass_fds=[read], env=shim.outer_env, stderr=subprocess.DEVNULL
        )
        os.close(read)
        for _ in range(spin * 300):
            pass
        outer.kill()
        outer.wait()
        if lifeline:
            os.close(write)
            until(lambda: not mentioning(str(shim.status_file)), "end with the starter")
            continue
        os.close(write)
        until(lambda: shim.said("ready") is not None or not mentioning(str(shim.status_file)), "a sandbox, or nothing")
        if shim.said("ready") is not None:
            os.kill(shim.pid, signal.SIGKILL)
            until(lambda: not mentioning(str(shim.status_file)), "end")


BAD = [
    ("no command", ["--"]),
    ("both", ["--empty", "--", "true"]),
    ("unknown", ["--sandbox", "--", "true"]),
    ("limit", ["--log-limit", "-5", "--", "true"]),
    ("limit 0", ["--log-limit", "0", "--", "true"]),
    ("limit with a unit", ["--log-limit", "5M", "--", "true"]),
    ("uid alone", ["--uid", "5", "--", "true"]),
    ("gid alone", ["--gid", "5", "--", "true"]),
    ("uid -1", ["--uid", "4294967295", "--gid", "5", "--", "true"]),
    ("uid name", ["--uid", "root", "--gid", "0", "--", "true"]),
    ("uid empty", ["--uid", "", "--gid", "0", "--", "true"]),
    ("groups alone", ["--groups", "5", "--", "true"]),
    ("groups", ["--uid", "5", "--gid", "5", "--groups", "1,,2", "--", "true"]),
    ("groups comma", ["--uid", "5", "--gid", "5", "--groups", "1,", "--", "true"]),
    ("relative cwd", ["--cwd", "tmp", "--", "true"]),
    ("pid 1", ["--kernel-pid", "1", "--", "true"]),
    ("closed env", ["--env-fd", "77", "--", "true"]),
    ("closed lifeline", ["--lifeline", "77", "--", "true"]),
    ("huge", ["--env-fd", "99999999999999999999", "--", "true"]),
]


@pytest.mark.parametrize("arguments", [bad[1] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_arguments(shim: Shim, arguments: list[str]) -> None:
    command = [str(shim.program), "--status", str(shim.status_file), "--log", str(shim.log_file), *arguments]
    done = subprocess.run(command, env=shim.outer_env, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    assert done.stderr.startswith("usage:")
    assert shim.said("error") is not None
    assert shim.said("shim") is None


@pytest.mark.parametrize("missing", ["--status", "--log"])
def test_missing_files(shim: Shim, missing: str) -> None:
    command = [str(shim.program), "--status", str(shim.status_file), "--log", str(shim.log_file), "--", "true"]
    at = command.index(missing)
    del command[at : at + 2]
    assert subprocess.run(command, env=shim.outer_env, stderr=subprocess.DEVNULL, check=False, timeout=30).returncode == 2


def refused(shim: Shim, *argv: str, options: list[str] | None = None, what: str) -> None:
    shim.start(*argv, options=options or [])
    assert shim.wait() == 125
    assert shim.lines()[-1].startswith(f"error {what}")
    assert shim.said("ready") is None
    assert what in shim.stderr()
    assert mentioning(str(shim.status_file)) == []


def test_missing_program(shim: Shim) -> None:
    refused(shim, "/no/such/python", what="command /no/such/python")


def test_program_that_is_not_on_path(shim: Shim) -> None:
    refused(shim, "no-such-program", what="command no-such-program")


def test_program_that_may_not_be_run(shim: Shim, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    refused(shim, str(tmp_path / "text"), what="command")


def test_missing_working_folder(shim: Shim) -> None:
    refused(shim, "true", options=["--cwd", "/no/such/folder"], what="working folder /no/such/folder")


def test_working_folder_that_its_owner_may_not_enter(shim: Shim, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    refused(
        shim,
        "true",
        options=["--uid", str(NOBODY), "--gid", str(NOBODY), "--cwd", str(tmp_path / "private")],
        what="working folder",
    )


def test_name_with_a_line_break_is_one_line(shim: Shim) -> None:
    refused(shim, "/no/such\nready\n", what="command /no/such?ready?")


def test_folder_for_the_log_is_missing(shim: Shim) -> None:
    shim.start("true", log=shim.folder / "no" / "kernel.log")
    assert shim.wait() == 125
    assert shim.lines()[-1].startswith("error log file")


def test_log_that_is_a_link_is_not_followed(shim: Shim) -> None:
    shim.log_file.symlink_to("/etc/hostname")
    shim.start("echo", "overwritten")
    assert shim.wait() == 125
    assert shim.lines()[-1].startswith("error log file")


def test_folder_for_the_status_is_missing(shim: Shim) -> None:
    command = [str(shim.program), "--status", str(shim.folder / "no" / "status"), "--log", str(shim.log_file), "--", "true"]
    done = subprocess.run(command, env=shim.outer_env, capture_output=True, check=False, timeout=30)
    assert done.returncode == 125


def test_environment_without_an_end(shim: Shim, tmp_path: Path) -> None:
    (tmp_path / "env").write_bytes(b"PATH=/usr/bin\0A=b")
    with open(tmp_path / "env") as env:
        command = shim.command(["true"], ["--env-fd", str(env.fileno())])
        done = subprocess.run(
            command, env=shim.outer_env, pass_fds=[env.fileno()], stderr=subprocess.DEVNULL, check=False, timeout=30
        )
    assert done.returncode == 125
    assert shim.lines()[-1].startswith("error environment")


def test_without_privilege_it_says_so(shim: Shim) -> None:
    """Run as nobody: from a copy, since nobody may not look into every checkout."""
    code = (
        "import os, sys\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "os.execv('/proc/self/fd/' + sys.argv[1], sys.argv[2:])"
    )
    program = os.open(shim.program, os.O_PATH)
    folder = Path("/tmp") / f"perdure-test-{os.getpid()}"
    folder.mkdir(mode=0o777, exist_ok=True)
    folder.chmod(0o777)
    try:
        command = [str(shim.program), "--status", str(folder / "status"), "--log", str(folder / "log"), "--", "true"]
        done = subprocess.run(
            [sys.executable, "-c", code, str(program), *command],
            pass_fds=[program],
            stderr=subprocess.PIPE,
            check=False,
            timeout=30,
        )
        assert done.returncode == 125
        assert (folder / "status").read_text().startswith("error pid namespace")
    finally:
        os.close(program)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
