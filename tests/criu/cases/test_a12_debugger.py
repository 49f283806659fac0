"""A12: the page's debugger is attached, and a cell stands at a breakpoint. In a kernel that Perdure's launcher starts."""

from __future__ import annotations

import queue
import sys
import time
from pathlib import Path
from typing import Any

import perdure.kernelside
import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]

LAUNCH = Path(perdure.kernelside.__file__).parent / "launch.py"
ABILITIES = {"pathFormat": "path", "linesStartAt1": True, "columnsStartAt1": True, "supportsVariableType": True, "locale": "en"}
CODE = "def double(n):\n    twice = n * 2\n    return twice\n"


class Debugger:
    """The page's side of it."""

    def __init__(self, kernel: LiveKernel) -> None:
        self._client = kernel.client
        self._number = 0

    def ask(self, command: str, **arguments: Any) -> Any:
        """The answer's body. Raises TimeoutError, and AssertionError when it is no success."""
        self._number += 1
        content = {"type": "request", "seq": self._number, "command": command, "arguments": arguments}
        request = self._client.session.msg("debug_request", content)
        self._client.control_channel.send(request)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                reply = self._client.get_control_msg(timeout=1)
            except queue.Empty:
                continue
            if reply["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                answer = reply["content"]
                assert answer["success"], answer
                assert answer["command"] == command
                return answer.get("body")
        raise TimeoutError(f"no answer to {command}")

    def attach(self) -> None:
        self.ask("initialize", clientID="page", adapterID="", **ABILITIES)
        self.ask("attach")
        path = self.ask("dumpCell", code=CODE)["sourcePath"]
        assert self.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": 3}])["breakpoints"][0]["verified"]
        self.ask("configurationDone")

    def wait_until_stopped(self) -> None:
        deadline = time.monotonic() + 20
        while not self.ask("debugInfo")["stoppedThreads"]:
            assert time.monotonic() < deadline, "the breakpoint was not met"

    def local_values(self) -> dict[str, str]:
        """Of the function that stands at the breakpoint."""
        top = self.ask("stackTrace", threadId=1)["stackFrames"][0]
        assert (top["name"], top["line"]) == ("double", 3)
        reference = self.ask("scopes", frameId=top["id"])["scopes"][0]["variablesReference"]
        return {one["name"]: one["value"] for one in self.ask("variables", variablesReference=reference)["variables"]}


@pytest.fixture
def debugged(start_kernel, kernel_folder: Path) -> LiveKernel:  # type: ignore[no-untyped-def]
    # ipykernel writes the sources of cells that are debugged into a temporary folder.
    argv = ("env", f"TMPDIR={kernel_folder}", sys.executable, str(LAUNCH), "-f", "{connection_file}")
    kernel: LiveKernel = start_kernel(argv=(*argv, "--HistoryManager.enabled=False"))
    return kernel


def test_a_cell_at_a_breakpoint(debugged: LiveKernel, still_a_kernel) -> None:  # type: ignore[no-untyped-def]
    debugger = Debugger(debugged)
    debugger.attach()
    debugged.run(CODE)
    cell = debugged.begin("print(double(21))")
    debugger.wait_until_stopped()
    for _ in range(2):
        snapshot = debugged.snapshot()
        assert snapshot.record.warnings == ()
        debugged.kill()
        debugged.restore(snapshot)
        assert debugger.local_values() == {"n": "21", "twice": "42"}
    assert cell.reply is None
    debugger.ask("continue", threadId=1)
    assert debugged.finish(cell) == "42"
    debugger.ask("disconnect", restart=False, terminateDebuggee=False)
    still_a_kernel(debugged)
    debugger.attach()
    cell = debugged.begin("print(double(5))")
    debugger.wait_until_stopped()
    assert debugger.local_values()["n"] == "5"
    debugger.ask("disconnect", restart=False, terminateDebuggee=False)
    assert debugged.finish(cell) == "10"
