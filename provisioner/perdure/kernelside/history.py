"""IPython's history, without a database that stays open.

What goes wrong in the world: IPython keeps history.sqlite open twice, in the shell and in a thread. All kernels of a user write
to that one file, so after a snapshot it grows, and a process that is brought back with it open meets a file that it does not
know: CRIU refuses ("bad size"), or SQLite writes pages of the past into it. And a kernel that has gone back in time uses its
line numbers again, on which IPython prints "Session/line number was not unique".

What we do: the database is opened for each read and each write, and closed at once. Lines are written where IPython's shell
stores them, at the beginning of a cell and in the thread of the cell, not in one of our own: a thread that waits for the GIL
behind a long call would hold the file open all that while. It takes less than a millisecond, since we don't wait for the disk:
`synchronous` is off. Lines that can't be written (the file is locked, the disk is full) wait for the next cell. A kernel that
meets its own line numbers goes on in a new session; the lines of the time that was undone stay in the history.

What we don't promise: a snapshot that falls into that millisecond has the file open; and a machine that loses its power in the
seconds after a cell may leave a broken history, which IPython sets aside. Waiting for the disk would make the first happen often
when cells follow each other quickly, and each of them slower by milliseconds.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from typing import Any

LOCK_WAIT_S = 0.5
"""How long a cell may wait for another kernel that is writing: such a write takes milliseconds."""
MOST_WAITING = 1000
"""Lines kept in memory while the file can't be written; older ones are dropped."""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS sessions (session integer primary key autoincrement, start timestamp,"
    " end timestamp, num_cmds integer, remark text)",
    "CREATE TABLE IF NOT EXISTS history (session integer, line integer, source text, source_raw text,"
    " PRIMARY KEY (session, line))",
    "CREATE TABLE IF NOT EXISTS output_history (session integer, line integer, output text, PRIMARY KEY (session, line))",
)
"""IPython's own, for a file that was deleted while the kernel was away."""


class Rows:
    """What `execute` found, read to the end: a cursor without a database behind it."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._rows = iter(cursor.fetchall())
        self.lastrowid = cursor.lastrowid
        self.rowcount = cursor.rowcount
        self.description = cursor.description

    def __iter__(self) -> Rows:
        return self

    def __next__(self) -> Any:
        return next(self._rows)

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)


def momentary(dummy: type[Any]) -> type[Any]:
    """The class of the database; `dummy` is IPython's DummyDB, the only other class that a history manager's `db` may have."""

    class MomentaryDB(dummy):
        """As much of a sqlite3.Connection as IPython uses. `with` opens it for one transaction; else each `execute` is one."""

        def __init__(self, path: str, options: dict[str, Any]) -> None:
            self._path = path
            self._options = {"timeout": LOCK_WAIT_S, **options}
            self._lock = threading.RLock()
            self._depth = 0
            self._connection: sqlite3.Connection | None = None

        def __enter__(self) -> sqlite3.Connection:
            self._lock.acquire()
            try:
                if self._connection is None:
                    self._connection = self._connect()
            except BaseException:
                self._lock.release()
                raise
            self._depth += 1
            return self._connection

        def __exit__(self, kind: Any, *_: Any) -> None:
            try:
                self._depth -= 1
                if self._depth == 0 and self._connection is not None:
                    connection, self._connection = self._connection, None
                    try:
                        if kind is None:
                            connection.commit()
                        else:
                            connection.rollback()
                    finally:
                        connection.close()
            finally:
                self._lock.release()

        def execute(self, *arguments: Any) -> Rows:
            with self as connection:
                return Rows(connection.execute(*arguments))

        def executemany(self, *arguments: Any) -> Rows:
            with self as connection:
                return Rows(connection.executemany(*arguments))

        def commit(self) -> None:
            """Nothing waits: `execute` has done it, or the end of `with` will."""

        def rollback(self) -> None:
            """Nothing waits."""

        def close(self) -> None:
            """It is closed."""

        def _connect(self) -> sqlite3.Connection:
            new = not os.path.exists(self._path) or os.path.getsize(self._path) == 0
            connection = sqlite3.connect(self._path, **self._options)
            try:
                connection.execute("PRAGMA synchronous = OFF")
                if new:
                    for table in _TABLES:
                        connection.execute(table)
            except BaseException:
                connection.close()
                raise
            return connection

    return MomentaryDB


def install() -> None:
    """Make every shell that is created from now on keep its history so. Without an IPython that we know, nothing is changed."""
    from IPython.core import history, interactiveshell

    base = getattr(history, "HistoryManager", None)
    dummy = getattr(history, "DummyDB", None)
    if base is None or dummy is None or getattr(interactiveshell, "HistoryManager", None) is not base:
        return
    MomentaryDB = momentary(dummy)

    class MomentaryHistory(base):  # type: ignore[misc, valid-type]
        """IPython's history manager; its settings are those of HistoryManager."""

        db: Any
        save_thread: Any
        using_thread: bool
        db_input_cache: list[Any]
        db_output_cache: list[Any]

        def __init__(self, *arguments: Any, **traits: Any) -> None:
            super().__init__(*arguments, **traits)
            if isinstance(self.db, MomentaryDB):
                if self.save_thread is not None:
                    self.save_thread.stop()
                    self.save_thread = None
                self.using_thread = False

        def init_db(self) -> None:
            super().init_db()
            # ':memory:' and a history that is switched off stay as they are.
            if isinstance(self.db, sqlite3.Connection) and str(self.hist_file) != ":memory:":
                self.db.close()
                options = {
                    "detect_types": sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES,
                    **self.connection_options,
                }
                self.db = MomentaryDB(str(self.hist_file), options)

        def store_inputs(self, *arguments: Any, **named: Any) -> None:
            super().store_inputs(*arguments, **named)
            self._write_when_due()

        def store_output(self, *arguments: Any, **named: Any) -> None:
            super().store_output(*arguments, **named)
            self._write_when_due()

        def _write_when_due(self) -> None:
            waiting = len(self.db_input_cache) + len(self.db_output_cache)
            if isinstance(self.db, MomentaryDB) and waiting and waiting >= self.db_cache_size:
                self.writeout_cache()

        def writeout_cache(self, conn: Any = None) -> None:
            if not isinstance(self.db, MomentaryDB):
                super().writeout_cache(conn)
                return
            with self.db_input_cache_lock, self.db_output_cache_lock:
                if not (self.db_input_cache or self.db_output_cache):
                    return
                try:
                    with self.db as connection:
                        self._write_all(connection)
                except sqlite3.Error as problem:
                    self.log.debug("History lines wait: %s", problem)
                    self.db_input_cache = self.db_input_cache[-MOST_WAITING:]
                    self.db_output_cache = self.db_output_cache[-MOST_WAITING:]

        def _write_all(self, connection: sqlite3.Connection) -> None:
            try:
                self._writeout_input_cache(connection)
            except sqlite3.IntegrityError:
                self.new_session(connection)
                self._writeout_input_cache(connection)
            self.db_input_cache = []
            try:
                self._writeout_output_cache(connection)
            except sqlite3.IntegrityError:
                pass  # The cell was running at the snapshot; its output is there from the first time.
            self.db_output_cache = []

    interactiveshell.HistoryManager = MomentaryHistory  # type: ignore[misc]
