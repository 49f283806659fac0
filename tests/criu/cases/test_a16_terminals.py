"""A16: children on a pseudo-terminal, `script`, cells in the background."""

from __future__ import annotations

import shutil

import pytest
from live_kernel import LiveKernel
from perdure.domain.errors import SnapshotFailed

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_a_shell_on_a_terminal(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import pexpect\n"
        "shell = pexpect.spawn('bash', ['--norc', '--noprofile'], encoding='utf-8', echo=False, timeout=20)\n"
        "def say(line):\n"
        "    shell.sendline(line + '; echo \"<$((6*7))>\"'); shell.expect('<42>'); return shell.before.strip().splitlines()[-1]"
    )
    kernel.run("say('mine=$RANDOM; echo set')")
    mine = kernel.run("say('echo $mine')")

    def check() -> None:
        assert kernel.run("say('echo $mine')") == mine
        assert kernel.run("say('tty')").startswith("'/dev/pts/")
        assert kernel.run("shell.isalive()") == "True"

    survives(check, end=lambda: kernel.run("shell.close(force=True)"))


@pytest.mark.skipif(shutil.which("script") is None, reason="no script(1)")
def test_script_is_refused_by_name(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    """It would end at the dump: it takes an interrupted poll() for an error."""
    kernel.run(
        "import subprocess\n"
        "pipe = subprocess.PIPE\n"
        "script = subprocess.Popen(['script', '-qefc', 'cat', '/dev/null'], stdin=pipe, stdout=pipe, start_new_session=True)\n"
        "def say(word):\n"
        "    script.stdin.write(word + b'\\n'); script.stdin.flush()\n"
        "    return [script.stdout.readline().strip() for _ in range(2)]"
    )
    assert kernel.run("say(b'hello')") == "[b'hello', b'hello']"

    with pytest.raises(SnapshotFailed, match=r"\(script\)"):
        kernel.snapshot()
    assert kernel.run("say(b'again')") == "[b'again', b'again']"
    kernel.run("script.kill(); script.wait()")
    survives(lambda: kernel.run("script.returncode"))


def test_a_script_cell_in_the_background(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run("%%bash --bg --out lines --proc running\nn=0; while sleep .05; do n=$((n+1)); echo $n; done")

    def check() -> None:
        assert kernel.run("running.returncode is None") == "True"
        kernel.run("first = int(await lines.readline())")
        assert kernel.run("int(await lines.readline()) == first + 1") == "True"

    survives(check)
