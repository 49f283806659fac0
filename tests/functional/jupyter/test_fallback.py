"""Where the host can't protect kernels, the kernel is a plain one, works, and says why it is not protected."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from perdure.jupyter.provisioner import PerdureProvisioner

from tests.functional.jupyter.conftest import Start
from tests.functional.jupyter.live import until


async def test_without_an_agent(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    live = await start("ours")
    assert isinstance(live.provisioner, PerdureProvisioner)
    assert not live.provisioner.protection.protected
    assert live.provisioner.protection.why
    assert live.provisioner.protection.fix
    assert live.provisioner.status is None
    assert live.manager.ip == "127.0.0.1"
    assert (await live.run("6 * 7")).results == ["42"]
    live.inputs = ["Ada"]
    assert (await live.run("print(input())")).text == "Ada\n"
    assert len([record for record in caplog.records if record.levelname == "WARNING" and "not protected" in record.message]) == 1


async def test_life_is_that_of_a_plain_kernel(start: Start) -> None:
    live = await start("ours")
    pid = live.provisioner.pid
    await live.run("x = 1")
    await live.manager.restart_kernel()
    await live.client.wait_for_ready(timeout=60)
    assert live.provisioner.pid != pid
    assert (await live.run("x")).reply["ename"] == "NameError"
    os.kill(live.provisioner.pid, signal.SIGKILL)
    while await live.manager.is_alive():
        pass
    assert await live.provisioner.poll() == -signal.SIGKILL


async def test_shutdown_ends_it(start: Start) -> None:
    live = await start("ours")
    pid = live.provisioner.pid
    await live.manager.shutdown_kernel()
    await until("the process is gone", lambda: not Path(f"/proc/{pid}/cmdline").exists())
    assert not live.manager.has_kernel


async def test_channels_over_unix_sockets_are_not_protected(start: Start) -> None:
    live = await start("ours", transport="ipc")
    assert not live.provisioner.protection.protected
    assert (await live.run("6 * 7")).results == ["42"]


@pytest.fixture
def liar(folder: Path) -> Iterator[Path]:
    """Something that is no agent listens on the agent's socket."""
    path = folder / "nobody.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


async def test_what_answers_is_no_agent(start: Start, liar: Path) -> None:
    live = await start("ours")
    assert not live.provisioner.protection.protected
    assert (await live.run("6 * 7")).results == ["42"]


async def test_provisioner_info_is_plain_json(start: Start) -> None:
    live = await start("ours")
    info = json.loads(json.dumps(await live.provisioner.get_provisioner_info()))
    assert info["connection_info"]["key"] == live.manager.session.key.decode()
    assert info["protection"]["protected"] is False


SCRIPT = """
import asyncio, json, logging, os, sys
logging.basicConfig(level=logging.WARNING)
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
async def main():
    specs = KernelSpecManager(kernel_dirs=[sys.argv[1]], ensure_native_kernel=False)
    manager = AsyncKernelManager(kernel_name="ours", kernel_spec_manager=specs)
    await manager.start_kernel()
    client = manager.client()
    client.start_channels()
    await client.wait_for_ready(timeout=60)
    reply = await client.execute_interactive("x = 6 * 7", store_history=False, user_expressions={"x": "x"}, output_hook=print)
    x = reply["content"]["user_expressions"]["x"]["data"]["text/plain"]
    print(json.dumps({"uid": os.getuid(), "protection": manager.provisioner.protection.to_json(), "x": x}))
    client.stop_channels()
    await manager.shutdown_kernel()
asyncio.run(main())
"""


def other_python() -> str | None:
    """One that every user may run."""
    for python in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        real = Path(python).resolve()
        if real.exists() and all(folder.stat().st_mode & 0o001 for folder in (real, *real.parents)):
            return python
    return None


@pytest.mark.root
def test_user_without_privilege(folder: Path, env: dict[str, str], python_path: dict[str, str]) -> None:
    from tests.functional.jupyter.live import specs

    python = other_python()
    if python is None:
        pytest.skip("no Python here that another user may run")
    specs(folder / "kernels")
    home = folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, 65534, 65534)
    registered = python_path["PYTHONPATH"].split(os.pathsep)
    for number, place in enumerate(registered):
        for info in Path(place).glob("perdure_for_tests-0.dist-info"):
            (home / str(number)).mkdir()
            (home / str(number) / info.name).mkdir()
            for file in info.iterdir():
                (home / str(number) / info.name / file.name).write_bytes(file.read_bytes())
            registered[number] = str(home / str(number))
    done = subprocess.run(
        [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            python,
            "-W",
            "ignore",
            "-c",
            SCRIPT,
            str(folder / "kernels"),
        ],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": os.pathsep.join([*registered, sysconfig.get_path("purelib")]),
        },
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["uid"] == 65534
    assert told["x"] == "42"
    assert told["protection"]["protected"] is False
    assert told["protection"]["why"]
    assert "not protected" in done.stderr
