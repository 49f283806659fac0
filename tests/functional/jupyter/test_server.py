"""What an open page sees of a kernel's death and comeback: nothing but a pause."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.functional.jupyter.agents import Agent, kill_tree
from tests.functional.jupyter.served import Page, Server


async def pid_of(page: Page) -> int:
    """The kernel's pid on this host, from the agent: inside it is always 1000."""
    from perdure.domain.ids import KernelId
    from perdure.wire.client import AgentClient

    client = AgentClient()
    try:
        return int((await client.kernel(KernelId(page.kernel))).pid or 0)
    finally:
        await client.close()


async def snapshot(page: Page) -> dict[str, Any]:
    """Through the server; waits for the one that the agent takes by itself after the first cell."""
    async with asyncio.timeout(60):
        while True:
            answer = await page.server.fetch("POST", f"perdure/api/kernels/{page.kernel}/snapshot")
            if answer.code != 409:
                assert answer.code == 200, answer.body
                return dict(json.loads(answer.body))
            await asyncio.sleep(0.05)


async def kill(page: Page) -> None:
    kill_tree(await pid_of(page))


async def back(page: Page, times: int = 1) -> None:
    """It has been restored so often, and is proven."""
    async with asyncio.timeout(60):
        while True:
            state = await page.state()
            if len(state["restores"]) == times and state["phase"] == "running":
                return
            await asyncio.sleep(0.05)


async def lose(page: Page) -> None:
    """kill -9; returns when it is back."""
    restores = len((await page.state())["restores"])
    await kill(page)
    await back(page, restores + 1)


class TestWithoutProtection:
    async def test_kernel_works_and_the_page_is_told_why(self, server: Server) -> None:
        page = await server.open("ours")
        assert await page.run("x = 42; print(x)") == "42\n"
        state = await page.state()
        assert state["protected"] is False
        assert state["why"]
        assert state["fix"]

    async def test_kernels_of_others_are_listed_too(self, server: Server) -> None:
        page = await server.open("plain")
        [state] = (await server.ask("GET", "perdure/api/kernels"))["kernels"]
        assert state["kernel_id"] == page.kernel
        assert state["protected"] is False
        answer = await server.fetch("POST", f"perdure/api/kernels/{page.kernel}/snapshot")
        assert answer.code == 503
        assert json.loads(answer.body)["error"]["code"] == "not-protected"

    @pytest.mark.parametrize("path", ["kernels", "kernels/x", "kernels/x/snapshot", "kernels/x/restore"])
    async def test_strangers_are_turned_away(self, server: Server, path: str) -> None:
        method = "POST" if path.endswith(("snapshot", "restore")) else "GET"
        for token in ("", "wrong"):
            assert (await server.fetch(method, f"perdure/api/{path}", token=token)).code == 403

    async def test_unknown_kernel(self, server: Server) -> None:
        for method, path in (("GET", "kernels/x"), ("POST", "kernels/x/snapshot"), ("POST", "kernels/x/restore")):
            answer = await server.fetch(method, f"perdure/api/{path}")
            assert answer.code == 404
            assert json.loads(answer.body)["error"]["code"] == "not-found"


@pytest.mark.root
@pytest.mark.criu
class TestProtected:
    async def test_page_sees_a_pause_only(self, agent: Agent, server: Server) -> None:
        page = await server.open("ours")
        await page.run("x = 42")
        done = await snapshot(page)
        await lose(page)
        assert await page.run("print(x)") == "42\n"
        assert page.connected
        assert page.statuses <= {"starting", "idle", "busy"}
        [kernel] = await server.ask("GET", "api/kernels")
        assert kernel["id"] == page.kernel
        state = await page.state()
        assert state["protected"] is True
        assert state["last_snapshot"]["generation"] == done["generation"]
        assert {"created", "stall_s", "bytes_logical"} <= set(state["last_snapshot"])
        assert len(state["restores"]) == 1
        page.inputs = ["Ada"]
        assert await page.run("print(input())") == "Ada\n"

    async def test_running_cell_answers_the_page_that_sent_it(self, agent: Agent, server: Server) -> None:
        page = await server.open("ours")
        message = page.send_cell("import time\nfor n in range(60):\n    print(n, flush=True)\n    time.sleep(0.1)")
        await page.until("it runs", lambda: page.text(message))
        await snapshot(page)
        await lose(page)
        assert (await page.reply(message))["status"] == "ok"
        assert page.text(message).split()[-1] == "59"
        assert page.statuses <= {"starting", "idle", "busy"}

    async def test_cells_sent_while_it_is_away_run_afterwards(self, agent: Agent, server: Server) -> None:
        """All of them, in order. What the first one says may be lost, when its channel is back later than the cell's own."""
        page = await server.open("ours")
        await page.run("ran = []")
        await snapshot(page)
        await kill(page)
        messages = [page.send_cell(f"ran.append({number}); print(ran)") for number in range(3)]
        assert (await page.reply(messages[-1]))["status"] == "ok"
        assert page.text(messages[-1]) == "[0, 1, 2]\n"

    async def test_interrupt_while_it_is_away_is_not_an_error(self, agent: Agent, server: Server) -> None:
        page = await server.open("ours")
        await page.run("x = 42")
        await snapshot(page)
        await kill(page)
        await server.ask("POST", f"api/kernels/{page.kernel}/interrupt", {})
        await back(page)
        assert await page.run("print(x)") == "42\n"

    async def test_restart_by_the_user_starts_afresh(self, agent: Agent, server: Server) -> None:
        page = await server.open("ours")
        await page.run("x = 42")
        await snapshot(page)
        await server.ask("POST", f"api/kernels/{page.kernel}/restart", {})
        await page.reconnect()
        message = page.send_cell("x")
        assert (await page.reply(message))["ename"] == "NameError"
        await page.run("x = 'new'")
        await snapshot(page)
        await lose(page)
        assert await page.run("print(x)") == "new\n"

    async def test_kernel_without_a_snapshot_is_restarted_by_jupyter(self, agent: Agent, server: Server) -> None:
        """Nothing can be brought back: what a page is used to, a `restarting` and a new kernel."""
        page = await server.open("ours")
        await kill(page)
        await page.until("the page is told", lambda: "restarting" in page.statuses)
        await page.reconnect()
        assert await page.run("print(1)") == "1\n"
        assert (await page.state())["protected"] is True

    async def test_restore_by_the_page(self, agent: Agent, server: Server) -> None:
        page = await server.open("ours")
        await page.run("x = 'then'")
        done = await snapshot(page)
        await page.run("x = 'later'")
        body = {"generation": done["generation"]}
        state = await server.ask("POST", f"perdure/api/kernels/{page.kernel}/restore", body)
        assert state["phase"] == "running"
        assert await page.run("print(x)") == "then\n"
        assert page.statuses <= {"starting", "idle", "busy"}
        answer = await server.fetch("POST", f"perdure/api/kernels/{page.kernel}/restore", {"generation": 99})
        assert answer.code == 404
        answer = await server.fetch("POST", f"perdure/api/kernels/{page.kernel}/restore", {"generation": "x"})
        assert answer.code == 400

    async def test_shutdown_drops_everything(self, agent: Agent, server: Server) -> None:
        page = await server.open("ours")
        await page.run("x = 42")
        await snapshot(page)
        await server.ask("DELETE", f"api/kernels/{page.kernel}")
        assert (await server.ask("GET", "perdure/api/kernels")) == {"kernels": []}
        assert not list(agent.state.glob(f"repository/**/{page.kernel}/*"))
        assert not list(agent.state.glob(f"kernels/{page.kernel}"))

    async def test_agent_restarts_under_a_page(self, agent: Agent, server: Server) -> None:
        page = await server.open("ours")
        await page.run("x = 42")
        agent.stop()
        assert await page.run("print(x)") == "42\n"
        agent.start()
        await snapshot(page)
        await lose(page)
        assert await page.run("print(x)") == "42\n"
        assert page.statuses <= {"starting", "idle", "busy"}
