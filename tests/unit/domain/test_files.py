"""What happens to files that a kernel had open: the table of docs/files.md, and what holds for all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.domain.files import Action, Decision, FileNow, decide, decide_all
from perdure.domain.record import OpenFile

THEN = OpenFile(
    path="/home/a/x",
    size=100,
    mtime_ns=5,
    inode=7,
    writable=True,
    append=False,
    mapped=False,
    executable=False,
    captured="files/1",
    digest="d",
)
UNCHANGED = FileNow(size=100, mtime_ns=5, inode=7, begins_same=True)
TOUCHED = replace(UNCHANGED, mtime_ns=6, inode=8)
GROWN = FileNow(size=120, mtime_ns=6, inode=7, begins_same=True)
REWRITTEN = FileNow(size=100, mtime_ns=6, inode=7, begins_same=False)
SHRUNK = FileNow(size=50, mtime_ns=6, inode=7, begins_same=False)
REPLACED = FileNow(size=300, mtime_ns=6, inode=8, begins_same=False)

READ = replace(THEN, writable=False)
APPENDED = replace(THEN, append=True)
WRITTEN = THEN
SHARED = replace(THEN, mapped=True)
LIBRARY = replace(THEN, writable=False, mapped=True, executable=True, captured="", digest="", build_id="b1")

KEEP, PATCH, PUT_BACK, REFUSE = Action.KEEP, Action.PATCH_SIZE, Action.PUT_BACK, Action.REFUSE


@pytest.mark.parametrize("captured", [True, False], ids=["captured", "large"])
@pytest.mark.parametrize(
    ("now", "expected"),
    [
        # read-only, appended, written, shared mapping; with a captured copy and without
        (UNCHANGED, [(KEEP, KEEP)] * 4),
        (TOUCHED, [(KEEP, KEEP), (KEEP, REFUSE), (KEEP, REFUSE), (KEEP, REFUSE)]),
        (GROWN, [(PATCH, PATCH), (PATCH, PATCH), (PUT_BACK, REFUSE), (PUT_BACK, REFUSE)]),
        (REWRITTEN, [(PUT_BACK, REFUSE)] * 4),
        (SHRUNK, [(PUT_BACK, REFUSE)] * 4),
        (REPLACED, [(PUT_BACK, REFUSE)] * 4),
        (None, [(PUT_BACK, REFUSE)] * 4),
    ],
    ids=["unchanged", "touched", "grown", "rewritten", "shrunk", "replaced", "deleted"],
)
def test_the_table(now: FileNow | None, expected: list[tuple[Action, Action]], captured: bool) -> None:
    for then, (with_copy, without) in zip((READ, APPENDED, WRITTEN, SHARED), expected, strict=True):
        then = then if captured else replace(then, captured="", digest="sample-d")
        decision = decide(then, now)
        assert decision.action is (with_copy if captured else without), then
        assert then.path in decision.sentence


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (FileNow(100, 9, 9, build_id="b1"), KEEP),
        (FileNow(100, 5, 7, build_id="b2"), REFUSE),
        (FileNow(101, 5, 7, build_id="b1"), REFUSE),
        (FileNow(100, 5, 7), KEEP),
        (FileNow(100, 6, 7), REFUSE),
        (None, REFUSE),
    ],
)
def test_programs_and_libraries(now: FileNow | None, expected: Action) -> None:
    decision = decide(LIBRARY, now, accept_changed=True)
    assert decision.action is expected
    assert not decision.acceptable


def test_what_the_owner_cannot_replace_is_refused_and_can_be_accepted() -> None:
    stuck = replace(REWRITTEN, stuck="it belongs to another user")
    refused = decide(WRITTEN, stuck)
    assert (refused.action, refused.acceptable) == (REFUSE, True)
    assert decide(WRITTEN, stuck, accept_changed=True).action is PATCH


def test_a_mapped_file_that_shrank_would_crash_the_kernel() -> None:
    decision = decide(replace(SHARED, captured=""), SHRUNK, accept_changed=True)
    assert (decision.action, decision.acceptable) == (REFUSE, False)


def database(*names: str, captured: bool = True) -> list[OpenFile]:
    return [replace(THEN, path=f"/db{name}", captured="files/1" if captured else "") for name in names]


def actions(found: list[tuple[OpenFile, Decision]]) -> list[Action]:
    return [decision.action for _, decision in found]


def test_a_database_and_its_companions_stay_together() -> None:
    (base,) = database("", captured=False)
    (journal,) = database("-journal")
    # The large database was changed and can't be put back: neither can its journal.
    assert actions(decide_all([(base, REWRITTEN), (journal, None)], accept_changed=True)) == [REFUSE, PUT_BACK]
    assert not any(
        decision.acceptable for _, decision in decide_all([(base, REWRITTEN), (journal, None)]) if decision.action is REFUSE
    )
    assert actions(decide_all([(base, REWRITTEN), (journal, REWRITTEN)])) == [REFUSE, PUT_BACK]
    assert actions(decide_all([(base, REWRITTEN), (journal, REWRITTEN)], accept_changed=True)) == [PATCH, PATCH]
    # Unchanged, though large: the journal may come back.
    assert actions(decide_all([(base, UNCHANGED), (journal, None)])) == [KEEP, PUT_BACK]
    # Files whose names only look alike have nothing to do with each other.
    (other,) = database("2-journal")
    assert actions(decide_all([(base, REWRITTEN), (other, None)], accept_changed=True)) == [PATCH, PUT_BACK]


names = st.sampled_from(["/x", "/x-journal", "/x-wal", "/x-shm", "/y", "/y.wal", "/z"])
thens = st.builds(
    OpenFile,
    path=names,
    size=st.integers(0, 3),
    mtime_ns=st.integers(0, 2),
    inode=st.integers(1, 2),
    writable=st.booleans(),
    append=st.booleans(),
    mapped=st.booleans(),
    executable=st.booleans(),
    build_id=st.sampled_from(["", "a", "b"]),
    captured=st.sampled_from(["", "files/1"]),
    digest=st.just("d"),
)
nows = st.none() | st.builds(
    FileNow,
    size=st.integers(0, 3),
    mtime_ns=st.integers(0, 2),
    inode=st.integers(1, 2),
    regular=st.sampled_from([True, True, False]),
    build_id=st.sampled_from(["", "a", "b"]),
    begins_same=st.sampled_from([None, True, False]),
    stuck=st.sampled_from(["", "it belongs to another user"]),
)


@given(thens, nows, st.booleans())
def test_what_holds_for_every_file(then: OpenFile, now: FileNow | None, accept: bool) -> None:
    decision = decide(then, now, accept_changed=accept)
    assert then.path in decision.sentence
    match decision.action:
        case Action.KEEP:
            assert now is not None
            assert now.regular
            assert now.size == then.size
        case Action.PATCH_SIZE:
            assert now is not None
            assert now.regular
            assert not then.executable
            assert not (then.mapped and now.size < then.size)
        case Action.PUT_BACK:
            assert then.captured
            assert not then.executable
            assert now is None or (now.regular and not now.stuck)
        case Action.REFUSE:
            assert decision.hint
            assert not (accept and decision.acceptable)
    if decision.acceptable:
        assert decision.action is Action.REFUSE
        assert decide(then, now, accept_changed=True).action is Action.PATCH_SIZE


@given(st.lists(st.tuples(thens, nows), max_size=5, unique_by=lambda pair: pair[0].path), st.booleans())
def test_what_holds_for_all_together(files: list[tuple[OpenFile, FileNow | None]], accept: bool) -> None:
    together = decide_all(files, accept_changed=accept)
    assert [then for then, _ in together] == [then for then, _ in files]
    refused = any(decision.action is REFUSE for _, decision in together)
    for (then, now), (_, decision) in zip(files, together, strict=True):
        alone = decide(then, now, accept_changed=accept)
        # Together, files may be treated with more care, never with less.
        if alone.action is REFUSE:
            assert decision.action is REFUSE
        if now is None:
            assert decision.action in (PUT_BACK, REFUSE)
    if not refused:
        companions = [(then, decision) for then, decision in together if then.path.startswith("/x")]
        if any(then.path == "/x" for then, _ in companions):
            moved = {decision.action for _, decision in companions} - {KEEP}
            assert PUT_BACK not in moved or PATCH not in moved
