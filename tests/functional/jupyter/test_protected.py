"""A kernel in the agent's hands, through a real kernel manager: its life, its deaths, its comeback."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager
from perdure.domain.ids import KernelId
from perdure.domain.phases import Phase
from perdure.jupyter import watch
from perdure.wire.client import AgentClient

from tests.functional.jupyter.agents import Agent, kill_tree
from tests.functional.jupyter.conftest import Start
from tests.functional.jupyter.live import specs, until

pytestmark = [pytest.mark.root, pytest.mark.criu]


async def test_life_in_a_sandbox(agent: Agent, start: Start) -> None:
    live = await start("ours")
    assert live.provisioner.protection.protected, live.provisioner.protection
    assert live.provisioner.status.phase is Phase.RUNNING
    assert live.manager.ip.startswith("127.")
    assert live.manager.ip != "127.0.0.1"
    assert await live.value("__import__('os').getpid()") == 1000
    assert await live.value("'JPY_PARENT_PID' in __import__('os').environ") is False
    environ = Path(f"/proc/{live.provisioner.pid}/environ").read_bytes()
    assert b"IPYTHONDIR=" in environ
    info = json.loads(json.dumps(await live.provisioner.get_provisioner_info()))
    assert info["connection_info"]["ip"] == live.manager.ip


async def test_lost_and_brought_back(agent: Agent, start: Start) -> None:
    live = await start("ours")
    await live.run("x = 42\nclass Keep: pass\nk = Keep(); k.x = [x]")
    first = await live.snapshot()
    await live.lose()
    assert (await live.run("print(x, k.x[0] is x, In[1].split()[0])")).text == "42 True x\n"
    live.inputs = ["Ada"]
    assert (await live.run("print(input())")).text == "Ada\n"
    assert await live.snapshot() > first
    await live.lose()
    assert (await live.run("print(x)")).text == "42\n"


async def test_history_of_others_does_not_stand_in_the_way(agent: Agent, start: Start, folder: Path) -> None:
    first, second = await start("ours"), await start("ours")
    await first.run("mine = 1")
    await first.snapshot()
    await first.run("undone = 1")
    for number in range(20):
        await second.run(f"other = {number}")
    await first.lose()
    answers = [await first.run(f"after = {number}") for number in range(3)]
    assert all(answer.ok and not answer.text for answer in answers)
    assert "other = 19" in (await first.run("%history -g other")).text
    assert "undone = 1" in (await first.run("%history -g undone")).text


async def test_running_cell_goes_on(agent: Agent, start: Start) -> None:
    live = await start("ours")
    message = live.send("import time\nfor n in range(60):\n    print(n, flush=True)\n    time.sleep(0.1)\n'done'")
    await asyncio.sleep(1)
    await live.snapshot()
    await live.lose()
    answer = await live.collect(message)
    assert answer.ok
    assert answer.results == ["'done'"]
    assert answer.text.split()[-1] == "59"


async def test_interrupt(agent: Agent, start: Start) -> None:
    live = await start("ours")
    await live.run("x = 1")
    await live.snapshot()
    await live.lose()
    message = live.send("import time\nprint('on', flush=True)\nwhile True: time.sleep(0.01)")
    got: dict[str, Any] = {"msg_type": ""}
    while got["msg_type"] != "stream":
        got = await live.client.get_iopub_msg(timeout=10)
    await live.manager.interrupt_kernel()
    assert (await live.collect(message)).reply["ename"] == "KeyboardInterrupt"


async def test_restart_starts_afresh_and_stays_so(agent: Agent, start: Start) -> None:
    live = await start("ours")
    await live.run("x = 42")
    await live.snapshot()
    before = live.manager.get_connection_info()
    await live.manager.restart_kernel()
    await live.client.wait_for_ready(timeout=60)
    assert live.manager.get_connection_info() == before
    assert live.provisioner.status.incarnation == 2
    assert (await live.run("x")).reply["ename"] == "NameError"
    kill_tree(live.provisioner.status.pid)
    await until("the death is seen", lambda: live.provisioner.status.phase is Phase.FAILED)
    assert await live.manager.is_alive() is False
    assert live.provisioner.status.restores == ()


async def test_restart_again_protects_again(agent: Agent, start: Start) -> None:
    live = await start("ours")
    await live.manager.restart_kernel()
    await live.client.wait_for_ready(timeout=60)
    assert live.provisioner.status.policy.restore_on_death is True
    await live.run("y = 7")
    await live.snapshot()
    await live.lose()
    assert (await live.run("print(y)")).text == "7\n"


async def test_killed_and_started_again_as_the_restarter_does(agent: Agent, start: Start) -> None:
    live = await start("ours")
    await live.run("x = 1")
    await live.manager.restart_kernel(now=True)
    await live.client.wait_for_ready(timeout=60)
    assert (await live.run("x")).reply["ename"] == "NameError"


@pytest.mark.parametrize(("choice", "left"), [("drop", False), ("keep", True)])
async def test_shutdown(agent: Agent, start: Start, choice: str, left: bool) -> None:
    live = await start("ours")
    live.provisioner.snapshots_at_shutdown = choice
    await live.run("x = 1")
    await live.snapshot()
    kernel, pid = live.provisioner.perdure_id, live.provisioner.status.pid
    await live.manager.shutdown_kernel()
    assert not Path(f"/proc/{pid}").exists()
    assert not live.manager.has_kernel
    assert bool(list(agent.state.glob(f"repository/**/{kernel}/*"))) is left
    assert not list(agent.state.glob(f"kernels/{kernel}"))


async def test_kernel_that_ends_itself_is_not_brought_back(agent: Agent, start: Start) -> None:
    live = await start("ours")
    await live.run("x = 1")
    await live.snapshot()
    live.send("exit()")
    await until("the end is seen", lambda: not live.provisioner.status.phase.alive)
    assert await live.provisioner.poll() == 0
    assert live.provisioner.status.restores == ()


async def test_agent_restarts_under_a_kernel(agent: Agent, start: Start) -> None:
    live = await start("ours")
    await live.run("x = 42")
    agent.stop()
    for _ in range(5):
        assert await live.manager.is_alive()
        await asyncio.sleep(0.1)
    assert (await live.run("print(x)")).text == "42\n"
    agent.start()
    await live.snapshot()
    await live.lose()
    assert (await live.run("print(x)")).text == "42\n"


async def test_kernel_that_ends_without_an_agent(agent: Agent, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PATIENCE_S", 1.0)
    live = await start("ours")
    pid = live.provisioner.status.pid
    agent.stop()
    await asyncio.sleep(2)
    assert await live.manager.is_alive()
    kill_tree(pid)

    async with asyncio.timeout(30):
        while await live.manager.is_alive():
            await asyncio.sleep(0.1)


async def test_refusal_of_the_agent_means_a_plain_kernel(agent: Agent, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_REPOSITORY", "nonsense:///somewhere")
    live = await start("ours")
    assert not live.provisioner.protection.protected
    assert live.provisioner.protection.why
    assert (await live.run("6 * 7")).results == ["42"]
    await live.manager.restart_kernel()
    await live.client.wait_for_ready(timeout=60)
    assert (await live.run("6 * 7")).results == ["42"]


async def test_unprotected_kernel_is_protected_from_its_restart_on(agent: Agent, start: Start) -> None:
    agent.stop()
    live = await start("ours")
    assert not live.provisioner.protection.protected
    agent.start()
    before = live.manager.get_connection_info()
    await live.manager.restart_kernel()
    await live.client.wait_for_ready(timeout=60)
    assert live.provisioner.protection.protected
    assert live.manager.get_connection_info() == before
    await live.run("x = 42")
    await live.snapshot()
    await live.lose()
    assert (await live.run("print(x)")).text == "42\n"


async def test_program_of_another_language(agent: Agent, start: Start) -> None:
    live = await start("bash")
    assert live.provisioner.protection.protected, live.provisioner.protection
    await live.run("x=42")
    await live.snapshot()
    await live.lose()
    assert (await live.run("echo $x")).text.strip() == "42"


def test_manager_that_is_not_asynchronous(agent: Agent, folder: Path, env: dict[str, str]) -> None:
    """What `jupyter console` and nbclient use: its event loop runs only while something is asked."""
    manager = KernelManager(kernel_name="ours", kernel_spec_manager=specs(folder / "kernels"))
    manager.start_kernel(cwd=str(folder), env=env)
    try:
        assert manager.provisioner.protection.protected, manager.provisioner.protection
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        assert client.execute_interactive("x = 42", timeout=60)["content"]["status"] == "ok"
        asyncio.run(saved(manager.provisioner.perdure_id))
        kill_tree(manager.provisioner.status.pid)
        assert manager.is_alive()
        reply = client.execute_interactive("x", user_expressions={"x": "x"}, timeout=60)
        assert reply["content"]["user_expressions"]["x"]["data"]["text/plain"] == "42"
        manager.restart_kernel()
        client.wait_for_ready(timeout=60)
        assert client.execute_interactive("x", timeout=60, output_hook=lambda _: None)["content"]["status"] == "error"
        client.stop_channels()
    finally:
        manager.shutdown_kernel()
        manager.context.destroy(linger=0)
    assert not manager.is_alive()
    assert not list(agent.state.glob("kernels/*"))


async def saved(kernel: KernelId) -> None:
    client = AgentClient()
    try:
        while (await client.kernel(kernel)).last_snapshot is None:
            await asyncio.sleep(0.05)
    finally:
        await client.close()


async def test_encrypted_channels(agent: Agent, start: Start) -> None:
    live = await start("ours", transport_encryption="required")
    assert live.provisioner.protection.protected, live.provisioner.protection
    await live.run("x = 42")
    await until("the agent hears cells end", lambda: live.provisioner.status.last_snapshot)
    await live.lose()
    assert (await live.run("print(x)")).text == "42\n"
