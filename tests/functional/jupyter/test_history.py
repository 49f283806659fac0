"""IPython's history in a kernel that `launch.py` starts: all there, and never open for longer than a moment."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.functional.jupyter.conftest import Start
from tests.functional.jupyter.live import Live

DATABASE = "ipython/profile_default/history.sqlite"


def lines(folder: Path) -> list[tuple[int, int, str]]:
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        return database.execute("SELECT session, line, source_raw FROM history ORDER BY session, line").fetchall()


def open_databases(pid: int) -> list[str]:
    links = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{number}"))
        except FileNotFoundError:
            continue
    return [link for link in links if "history.sqlite" in link]


async def recalled(live: Live, **content: Any) -> list[Any]:
    request = {"output": False, "raw": True, "hist_access_type": "tail", "n": 10, **content}
    return list((await live.request("shell", "history_request", request))["history"])


async def test_lines_are_in_the_users_database_at_once(start: Start, folder: Path) -> None:
    live = await start("launched")
    await live.run("a = 1")
    message = live.send("print('running', flush=True)\nimport time\ntime.sleep(60)")
    got = await live.client.get_iopub_msg(timeout=10)
    while got["msg_type"] != "stream":
        got = await live.client.get_iopub_msg(timeout=10)
    assert [line for _, line, _ in lines(folder)] == [1, 2]
    await live.manager.interrupt_kernel()
    await live.collect(message)


async def test_database_is_not_open_between(start: Start) -> None:
    live = await start("launched")
    await live.run("a = 1")
    await recalled(live)
    assert open_databases(live.provisioner.pid) == []
    threads = (await live.run("import threading; print([t.name for t in threading.enumerate()])")).text
    assert "HistorySaving" not in threads


async def test_plain_kernel_has_it_open(start: Start) -> None:
    """What the test above would see if it could not fail."""
    assert open_databases((await start("plain")).provisioner.pid) != []


async def test_history_magics_and_requests(start: Start) -> None:
    earlier = await start("launched")
    await earlier.run("from_the_first = 1")
    live = await start("launched")
    for code in ("x = 1", "y = 2", "x = 3"):
        await live.run(code)
    assert (await live.run("%history")).text == "x = 1\ny = 2\nx = 3\n%history\n"
    assert "from_the_first" in (await live.run("%history -g first")).text
    assert "from_the_first" in (await live.run("%history ~1/1")).text
    assert [entry[2] for entry in await recalled(live, n=5)][-3:] == ["%history", "%history -g first", "%history ~1/1"]
    found = await recalled(live, hist_access_type="search", pattern="x = *", n=10)
    assert [entry[2] for entry in found] == ["x = 1", "x = 3"]
    assert [entry[2] for entry in await recalled(live, hist_access_type="range", session=0, start=1, stop=3)] == [
        "x = 1",
        "y = 2",
    ]
    assert (await live.run("%recall 2")).ok
    assert "x = 1" in (await live.run("%macro again 1\nprint(again)")).text


async def test_going_back_in_time_is_silent_and_loses_no_line(start: Start, folder: Path) -> None:
    """As after a restore: the lines after the snapshot are in the database already, and the kernel counts them again."""
    live = await start("launched")
    await live.run("kept = 1")
    [(session, _, _)] = lines(folder)
    with closing(sqlite3.connect(folder / DATABASE)) as database, database:
        database.execute("INSERT INTO history VALUES (?, 2, 'undone', 'undone')", (session,))
        database.execute("INSERT INTO history VALUES (?, 3, 'undone too', 'undone too')", (session,))
    answers = [await live.run(f"second_life = {n}") for n in range(3)]
    assert all(answer.ok and not answer.text for answer in answers)
    stored = lines(folder)
    assert {text for _, _, text in stored} >= {"kept = 1", "undone", "undone too", *(f"second_life = {n}" for n in range(3))}
    assert (session + 1, 2, "second_life = 0") in stored


async def test_locked_database_holds_nobody_up_and_loses_no_line(start: Start, folder: Path) -> None:
    live = await start("launched")
    await live.run("a = 1")
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = await live.run("b = 2")
        assert answer.ok
        assert not answer.text
        other.execute("ROLLBACK")
    await live.run("c = 3")
    assert [text for _, _, text in lines(folder)] == ["a = 1", "b = 2", "c = 3"]


async def test_deleted_database_is_made_anew(start: Start, folder: Path) -> None:
    live = await start("launched")
    await live.run("a = 1")
    (folder / DATABASE).unlink()
    answer = await live.run("b = 2")
    assert answer.ok
    assert not answer.text
    assert [text for _, _, text in lines(folder)] == ["b = 2"]


async def test_output_history_when_asked_for(start: Start, folder: Path, env: dict[str, str]) -> None:
    profile = folder / "ipython/profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_config.py").write_text("c.HistoryManager.db_log_output = True\n")
    live = await start("launched")
    await live.run("6 * 7")
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        assert database.execute("SELECT line, output FROM output_history").fetchall() == [(1, "42")]


@pytest.mark.parametrize("setting", ["c.HistoryManager.enabled = False", "c.HistoryManager.hist_file = ':memory:'"])
async def test_users_own_choice_stays(start: Start, folder: Path, setting: str) -> None:
    profile = folder / "ipython/profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_config.py").write_text(setting + "\n")
    live = await start("launched")
    await live.run("a = 1")
    assert (await live.run("%history")).text == "a = 1\n%history\n"
    assert not (folder / DATABASE).exists()


async def test_session_is_ended_with_the_kernel(start: Start, folder: Path) -> None:
    live = await start("launched")
    await live.run("a = 1")
    await live.manager.shutdown_kernel()
    await asyncio.sleep(0)
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        [(end, count)] = database.execute("SELECT end, num_cmds FROM sessions").fetchall()
    assert end is not None
    assert count == 1


async def test_several_kernels_write_at_once(start: Start, folder: Path) -> None:
    kernels = [await start("launched") for _ in range(3)]
    await asyncio.gather(*(run_many(live) for live in kernels))
    stored = lines(folder)
    assert len(stored) == len({(session, line) for session, line, _ in stored}) == 3 * 10


async def run_many(live: Live) -> None:
    for number in range(10):
        assert (await live.run(f"n = {number}")).ok
