"""A kernel that `launch.py` starts is like one that `-m ipykernel_launcher` starts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.functional.jupyter.conftest import Start
from tests.functional.jupyter.live import Live

WAYS = ["launched", "as-module"]
_CRIU = (pytest.mark.root, pytest.mark.criu)
Begin = Callable[[], Awaitable[Live]]


@pytest.fixture(params=[*WAYS, pytest.param("protected", marks=_CRIU), pytest.param("brought back", marks=_CRIU)])
def way(request: pytest.FixtureRequest) -> str:
    if request.param in ("protected", "brought back"):
        request.getfixturevalue("agent")
    return str(request.param)


@pytest.fixture
def begin(way: str, start: Start) -> Begin:
    async def beginner() -> Live:
        if way in WAYS:
            return await start(way)
        live = await start("ours")
        assert live.provisioner.protection.protected, live.provisioner.protection
        if way == "brought back":
            await live.snapshot()
            await live.lose()
        return live

    return beginner


PROBE = """
def probe():
    import sys, os, signal, threading, __main__
    ip = get_ipython()
    return {
        "path": sys.path,
        "argv": [a if not a.startswith("/") or a.endswith("ipykernel_launcher.py") else "FILE" for a in sys.argv],
        "main": sorted(vars(__main__)) and [__main__.__name__, getattr(__main__, "__file__", None), str(__main__.__spec__)],
        "flags": str(sys.flags),
        "shell": f"{type(ip).__module__}.{type(ip).__qualname__}",
        "kernel": f"{type(ip.kernel).__module__}.{type(ip.kernel).__qualname__}",
        "names": sorted(n for n in ip.user_ns if n != "probe"),
        "hidden": sorted(ip.user_ns_hidden),
        "execution_count": ip.execution_count,
        "in": len(ip.user_ns["In"]), "out": len(ip.user_ns["Out"]),
        "cwd": os.getcwd(), "stdin": sys.stdin is not None and str(type(sys.stdin)),
        "signals": [str(signal.getsignal(s)) for s in (signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP)],
        "history": isinstance(ip.history_manager, __import__("IPython.core.history").core.history.HistoryManager),
        "modules": sorted(m for m in sys.modules if "launch" in m.split(".")[-1] or m == "history"),
        "env": sorted(n for n in os.environ if n.startswith(("JPY", "PYTHON"))),
        "magics": sorted(ip.magics_manager.lsmagic()["line"]),
        "extensions": sorted(ip.extension_manager.loaded),
        "excepthook": str(sys.excepthook).split(" at ")[0], "displayhook": str(type(sys.displayhook)),
    }
"""


async def probed(live: Live) -> dict[str, Any]:
    assert (await live.run(PROBE)).ok
    return dict(json.loads((await live.run("import json; print(json.dumps(probe()))")).text))


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_program_sees(start: Start, way: str) -> None:
    plain, ours = await probed(await start("plain")), await probed(await start(way))
    assert ours == plain


@pytest.mark.parametrize("way", WAYS)
async def test_tip_draws_no_random_number(start: Start, way: str) -> None:
    live = await start(way)
    await live.run("import random; random.seed(1); state = random.getstate()")
    reply = await live.request("control", "kernel_info_request", {})
    assert reply["implementation"] == "ipython"
    assert "Tip:" not in reply["banner"]
    assert await live.value("random.getstate() == state") is True


async def test_user_may_turn_tips_on(start: Start, env: dict[str, str], folder: Any) -> None:
    profile = folder / "ipython/profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_config.py").write_text("c.InteractiveShell.enable_tip = True\n")
    live = await start("launched")
    assert "Tip:" in (await live.request("control", "kernel_info_request", {}))["banner"]


async def test_user_modules_of_our_names_are_theirs(start: Start, folder: Any) -> None:
    for name in ("history", "launch"):
        (folder / f"{name}.py").write_text("who = 'the user'\n")
    live = await start("launched")
    assert (await live.run("import history, launch; print(history.who, launch.who)")).text == "the user the user\n"


class TestFeatures:
    """Also in a protected kernel, and in one that was lost and brought back."""

    async def test_in_out_and_display(self, begin: Begin) -> None:
        live = await begin()
        assert (await live.run("6 * 7")).results == ["42"]
        assert (await live.run("_ + Out[1] + len(In)")).results == ["87"]

    async def test_input(self, begin: Begin) -> None:
        live = await begin()
        live.inputs = ["Ada"]
        assert (await live.run("print('Hello', input('Name? '))")).text == "Hello Ada\n"

    async def test_interrupt(self, begin: Begin) -> None:
        live = await begin()
        message = live.send("print('on', flush=True)\nimport time\nwhile True: time.sleep(0.01)")
        got = await live.client.get_iopub_msg(timeout=10)
        while got["msg_type"] != "stream":
            got = await live.client.get_iopub_msg(timeout=10)
        await live.manager.interrupt_kernel()
        assert (await live.collect(message)).reply["ename"] == "KeyboardInterrupt"
        assert (await live.run("1 + 1")).results == ["2"]

    async def test_matplotlib_inline(self, begin: Begin) -> None:
        live = await begin()
        answer = await live.run("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show(); print(plt.get_backend())")
        pictures = [m for m in answer.messages if m["msg_type"] == "display_data" and "image/png" in m["content"]["data"]]
        assert len(pictures) == 1
        assert "inline" in answer.text

    async def test_pip(self, begin: Begin) -> None:
        live = await begin()
        assert "pip" in (await live.run("%pip --version")).text

    async def test_widget_comm(self, begin: Begin) -> None:
        live = await begin()
        answer = await live.run("import ipywidgets; slider = ipywidgets.IntSlider(value=3); slider")
        opened = [m for m in answer.messages if m["msg_type"] == "comm_open"]
        assert opened
        model = next(m for m in opened if m["content"]["data"]["state"].get("value") == 3)
        content = {"comm_id": model["content"]["comm_id"], "data": {"method": "update", "state": {"value": 7}}}
        live.client.shell_channel.send(live.client.session.msg("comm_msg", content))
        assert await live.value("slider.value") == 7

    async def test_debugger(self, begin: Begin) -> None:
        live = await begin()
        arguments = {"clientID": "test", "adapterID": "", "pathFormat": "path", "linesStartAt1": True}
        for number, (command, given) in enumerate((("initialize", arguments), ("attach", {}), ("disconnect", {})), 1):
            content = {"type": "request", "seq": number, "command": command, "arguments": given}
            reply = await live.request("control", "debug_request", content)
            assert reply["success"] is True, reply
        assert (await live.run("1 + 1")).results == ["2"]

    async def test_subshell(self, begin: Begin) -> None:
        live = await begin()
        info = await live.request("control", "kernel_info_request", {})
        assert "kernel subshells" in info["supported_features"]
        made = await live.request("control", "create_subshell_request", {})
        assert made["status"] == "ok"
        listed = await live.request("control", "list_subshell_request", {})
        assert listed["subshell_id"] == [made["subshell_id"]]
        gone = await live.request("control", "delete_subshell_request", {"subshell_id": made["subshell_id"]})
        assert gone["status"] == "ok"

    async def test_completion_and_inspection(self, begin: Begin) -> None:
        live = await begin()
        await live.run("perdurable = 1")
        reply = await live.request("shell", "complete_request", {"code": "perdur", "cursor_pos": 6})
        assert "perdurable" in reply["matches"]
        reply = await live.request("shell", "inspect_request", {"code": "perdurable", "cursor_pos": 3, "detail_level": 0})
        assert reply["found"] is True
