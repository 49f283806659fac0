"""What a kernel sees and is, told by itself from inside."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from shim_driver import NOBODY, Shim, python

pytestmark = pytest.mark.root

AS_NOBODY = ("--uid", str(NOBODY), "--gid", str(NOBODY))


def say(shim: Shim, code: str) -> object:
    """Run Python as the kernel; its `answer` as JSON."""
    shim.start(*python(f"import json, os, sys\n{code}\nprint(json.dumps(answer))"))
    assert shim.wait() == 0, shim.log()
    return json.loads(shim.log())


def status_of_kernel(shim: Shim, *options: str) -> dict[str, str]:
    shim.start("cat", "/proc/self/status", options=options)
    assert shim.wait() == 0, (shim.log(), shim.lines())
    return {name: value.strip() for name, _, value in (line.partition(":") for line in shim.log().splitlines())}


def test_kernel_is_pid_1000_of_its_own_session(shim: Shim) -> None:
    answer = say(shim, "answer = [os.getpid(), os.getppid(), os.getsid(0), os.getpgid(0)]")
    assert answer == [1000, 1, 1000, 1000]


def test_other_pid_can_be_asked_for(shim: Shim) -> None:
    shim.start("sh", "-c", "echo $$", options=["--kernel-pid", "4321"])
    assert shim.wait() == 0
    assert shim.log() == "4321\n"


def test_children_get_the_next_pids(shim: Shim) -> None:
    assert say(shim, "import subprocess\nanswer = int(subprocess.check_output(['sh', '-c', 'echo $$']))") == 1001


def test_proc_is_its_own(shim: Shim) -> None:
    assert say(shim, "answer = sorted(int(n) for n in os.listdir('/proc') if n.isdigit())") == [1, 1000]


def test_shared_memory_is_its_own(shim: Shim) -> None:
    name = f"perdure-test-{os.getpid()}"
    shim.start("sh", "-c", f"ls -A /dev/shm; stat -c %a /dev/shm; echo x > /dev/shm/{name} && echo made; sleep 1000")
    assert shim.logged("made").split() == ["1777", "made"]
    assert not Path("/dev/shm", name).exists()
    assert Path(f"/proc/{shim.pid}/root/dev/shm", name).read_text() == "x\n"


def test_nothing_inherited_is_open(shim: Shim, tmp_path: Path) -> None:
    with open(tmp_path / "secret", "w") as secret, open("/dev/null") as low:
        shim.start("sh", "-c", "ls -l /proc/$$/fd; sleep 1000", pass_fds=[secret.fileno(), low.fileno()])
        log = shim.logged(" 2 -> ")
        links = [line.split(" -> ")[0].split()[-1] for line in log.splitlines() if " -> " in line]
        pipe = next(line.split(" -> ")[1] for line in log.splitlines() if " 1 -> " in line)
        assert links == ["0", "1", "2"]
        assert " 0 -> /dev/null" in log
        assert log.count(pipe) == 2
        for pid in (shim.pid, shim.kernel):
            opened = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
            assert not any("secret" in name for name in opened)
        assert os.readlink(f"/proc/{shim.pid}/fd/{shim.said('stdio')}") == pipe
        assert {os.readlink(f"/proc/{shim.pid}/fd/{n}") for n in range(3)} == {"/dev/null"}


def test_signals_are_as_a_program_expects_them(shim: Shim) -> None:
    status = status_of_kernel(shim)
    assert int(status["SigBlk"], 16) == int(status["SigIgn"], 16) == int(status["SigCgt"], 16) == 0


def test_starter_that_ignores_child_ends_is_no_trouble(shim: Shim) -> None:
    shim.start("sh", "-c", "exit 5", prefix=python("import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
                                                     "os.execv(sys.argv[1], sys.argv[1:])"))  # fmt: skip
    assert shim.wait() == 5


def test_credentials_are_dropped_for_good(shim: Shim) -> None:
    status = status_of_kernel(shim, *AS_NOBODY, "--groups", "4242,12")
    assert status["Uid"].split() == status["Gid"].split() == [str(NOBODY)] * 4
    assert sorted(status["Groups"].split()) == ["12", "4242"]
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}


def test_no_groups_means_none(shim: Shim) -> None:
    assert status_of_kernel(shim, *AS_NOBODY)["Groups"] == ""


def test_root_kernel_keeps_what_root_has(shim: Shim) -> None:
    own = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    assert status_of_kernel(shim)["CapEff"] == own["CapEff"].strip()


def test_setuid_programs_go_on_working(shim: Shim) -> None:
    """sudo's mechanism: no_new_privs must not be set, although a filter is."""
    if os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOSUID:
        pytest.skip("the folder for temporary files is mounted nosuid")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = Path(folder, "id")
        shutil.copy("/usr/bin/id", program)
        program.chmod(0o4755)
        shim.start("sh", "-c", f"{program} -u; grep -E 'NoNewPrivs|Seccomp:' /proc/self/status", options=AS_NOBODY)
        assert shim.wait() == 0
    assert shim.log().split() == ["0", "NoNewPrivs:", "0", "Seccomp:", "2"]


CALL = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nanswer = [libc.syscall({}), ctypes.get_errno()]"


@pytest.mark.parametrize("number", [425, 426, 427])
def test_io_uring_is_not_there(shim: Shim, number: int) -> None:
    assert say(shim, CALL.format(f"{number}, 8, 0, 0, 0, 0, 0")) == [-1, errno.ENOSYS]


@pytest.mark.parametrize("number", [424, 434])
def test_neighbours_of_io_uring_are_there(shim: Shim, number: int) -> None:
    """pidfd_send_signal and pidfd_open with senseless arguments: any error but "no such call"."""
    call = (
        f"import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nanswer = [l.syscall({number}, -1, 0, 0, 9), ctypes.get_errno()]"
    )
    result, number_of_error = say(shim, call)  # type: ignore[misc]
    assert result == -1
    assert number_of_error in (errno.EBADF, errno.EINVAL)


COMPAT = """
#include <stdio.h>
int main(void)
{
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(425L), "b"(8L), "c"(0L), "d"(0L), "S"(0L), "D"(0L)
                     : "memory", "r8", "r9", "r10", "r11");
    printf("%d\\n", (int)result);
    return 0;
}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the 32-bit door is one of x86")
def test_io_uring_is_not_there_by_the_32_bit_door_either(shim: Shim, tmp_path: Path) -> None:
    source = tmp_path / "compat.c"
    source.write_text(COMPAT)
    subprocess.run(["cc", "-o", str(tmp_path / "compat"), str(source)], check=True)
    outside = subprocess.run([str(tmp_path / "compat")], capture_output=True, text=True, check=False)
    if outside.returncode or int(outside.stdout) == -errno.ENOSYS:
        pytest.skip("this kernel has no 32-bit calls, or no io_uring for them")
    shim.start(str(tmp_path / "compat"))
    assert shim.wait() == 0
    assert int(shim.log()) == -errno.ENOSYS


def test_uvloop_runs_without_it(shim: Shim) -> None:
    code = """
import asyncio, uvloop
async def main():
    server = await asyncio.start_server(lambda r, w: (w.write(b"hello"), w.close()), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    text = (await reader.read()).decode()
    links = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{n}")]
    writer.close(); server.close()
    return [text, any("io_uring" in link for link in links)]
answer = uvloop.run(main())
"""
    assert say(shim, code) == ["hello", False]


@pytest.mark.parametrize("options", [(), AS_NOBODY], ids=["root", "nobody"])
def test_terminals_begin_at_0(shim: Shim, options: tuple[str, ...]) -> None:
    if shutil.which("script") is None:
        pytest.skip("no script(1)")
    shim.start("script", "-qc", "tty; stty size; echo done", "/dev/null", options=options)
    assert shim.wait() == 0
    assert shim.log().split()[0] == "/dev/pts/0"
    assert shim.log().split()[-1] == "done"


@pytest.mark.parametrize("options", [(), AS_NOBODY], ids=["root", "nobody"])
def test_output_can_be_opened_by_name(shim: Shim, options: tuple[str, ...]) -> None:
    shim.start("sh", "-c", "echo one > /dev/stdout; echo two > /dev/stderr", options=options)
    assert shim.wait() == 0
    assert shim.log().split() == ["one", "two"]


def test_environment_is_exactly_what_was_given(shim: Shim) -> None:
    env = {"PATH": os.environ["PATH"], "EMPTY": "", "LINES_": "a\nb", "UMLAUT": "ä€", "EQUALS": "a=b=c"}
    shim.start("env", "-0", env=env)
    assert shim.wait() == 0
    assert dict(entry.split("=", 1) for entry in shim.log().rstrip("\0").split("\0")) == env


def test_large_environment(shim: Shim) -> None:
    """More than a pipe holds at once, and than one read gives."""
    env = {"PATH": os.environ["PATH"], **{f"V{n}": "x" * 1000 for n in range(1000)}}
    shim.start("sh", "-c", "env | wc -c", env=env)
    assert shim.wait() == 0
    assert int(shim.log()) > 1_000_000


@pytest.mark.parametrize("program", ["shipped"], indirect=True)  # sanitizers keep copies of what was freed, on purpose
def test_pid_1_forgets_the_environment(shim: Shim) -> None:
    shim.start("sleep", "1000", env={"PATH": os.environ["PATH"], "TOKEN": "sesame" + "-open-up"})
    found = False
    with open(f"/proc/{shim.pid}/maps") as maps, open(f"/proc/{shim.pid}/mem", "rb", 0) as memory:
        for line in maps:
            where, rights = line.split()[:2]
            start, end = (int(part, 16) for part in where.split("-"))
            if rights.startswith("rw") and end - start < 64 << 20:
                memory.seek(start)
                found = found or b"sesame-open-up" in memory.read(end - start)
    assert not found


def test_working_folder_is_entered_as_the_owner(shim: Shim) -> None:
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        home = Path(parent, "home")
        home.mkdir(mode=0o700)
        os.chown(home, NOBODY, NOBODY)
        shim.start("sh", "-c", "pwd; echo x > made; umask", options=[*AS_NOBODY, "--cwd", str(home)])
        assert shim.wait() == 0
        made = (home / "made").stat()
    assert shim.log().split() == [str(home), "0022"]
    assert made.st_uid == NOBODY
    assert stat.S_IMODE(made.st_mode) == 0o644


def test_mounts_stay_inside(shim: Shim) -> None:
    inside = say(shim, "answer = [line.split()[4] for line in open('/proc/self/mountinfo')]")
    assert isinstance(inside, list)
    outside = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for place in ("/proc", "/dev/shm", "/dev/pts"):
        assert inside.count(place) == outside.count(place) + 1


def test_mounts_that_come_later_are_seen(shim: Shim, tmp_path: Path) -> None:
    """Automounted homes: the host's new mounts appear inside. In a mount namespace of this test, shared as a host's is."""
    place = tmp_path / "home"
    place.mkdir()
    shared = ["unshare", "-m", "--propagation", "shared"]
    shim.start("sh", "-c", f"while ! [ -e {place}/there ]; do sleep 0.02; done; echo seen", prefix=shared)
    assert shim.outer is not None
    enter = ["nsenter", "-m", "-t", str(shim.outer.pid)]
    subprocess.run([*enter, "mount", "-t", "tmpfs", "home", str(place)], check=True)
    subprocess.run([*enter, "touch", str(place / "there")], check=True)
    assert shim.wait() == 0
    assert shim.log() == "seen\n"
