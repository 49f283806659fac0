"""`collect`, `du`, and `list` and `show` with --repository read a repository by themselves: no agent, no root."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from perdure.cli import main
from perdure.domain.ids import KernelId
from perdure.store.repository import Repository, SourceFile

from tests.golden import format_1

KERNEL, OTHER = KernelId("3f2a"), KernelId("4f2b")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Six snapshots of one kernel, half an hour apart, of 100 kB each that they don't share; two of another one."""
    folder = tmp_path / "repository"
    opened = Repository.open(folder.as_uri())
    path = tmp_path / "pages"
    for kernel, number in [(KERNEL, at) for at in range(6)] + [(OTHER, at) for at in range(2)]:
        path.write_bytes(format_1._noise(100_000, number))
        created = datetime.fromtimestamp(1_800_000_000 + 1800 * number, UTC).isoformat()
        opened.publish(kernel, [SourceFile("pages", path, 0o600)], lambda _, created=created: {"created": created})  # type: ignore[misc]
    return folder


def ask(capsys: pytest.CaptureFixture[str], verb: str, repository: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    status = main([verb, "--json", "--repository", str(repository), *argv])
    return status, json.loads(capsys.readouterr().out)


def left(repository: Path, kernel: KernelId = KERNEL) -> list[int]:
    return list(Repository.open(repository.as_uri()).generations(kernel))


def test_without_rules_no_snapshot_goes(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = ask(capsys, "collect", repository)
    assert (status, said["bytes_removed"], said["skipped"]) == (0, 0, [])
    assert left(repository) == [1, 2, 3, 4, 5, 6]


def test_a_dry_run_says_what_would_go_and_why(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = ("3f2a", "--keep-last", "2", "--keep-hourly", "3", "--now")
    status, said = ask(capsys, "collect", repository, *rules, "--dry-run")
    assert status == 0
    assert left(repository) == [1, 2, 3, 4, 5, 6]
    [kernel] = said["kernels"]
    assert all(one["why"] for one in kernel["snapshots"])
    would = [one["generation"] for one in kernel["snapshots"] if not one["keep"]]
    assert kernel["retired"] == would == [1, 3]
    status, done = ask(capsys, "collect", repository, *rules)
    assert done["kernels"][0]["retired"] == would
    assert left(repository) == [2, 4, 5, 6]
    assert done["bytes_removed"] > 200_000
    assert left(repository, OTHER) == [1, 2]
    assert main(["verify", "--data", "--repository", str(repository)]) == 0


def test_what_was_needed_lately_waits(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, said = ask(capsys, "collect", repository, "--keep-last", "1")
    assert (said["bytes_removed"], said["bytes_waiting"] > 500_000) == (0, True)
    _, said = ask(capsys, "collect", repository, "--grace", "0")
    assert said["bytes_removed"] > 500_000


def test_budgets(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(capsys, "collect", repository, "3f2a", "--keep-bytes", "350000")
    assert left(repository) == [4, 5, 6]
    ask(capsys, "collect", repository, "--budget", "250000")
    assert (left(repository), left(repository, OTHER)) == ([6], [2])


def test_a_snapshot_that_is_being_stored_is_spared(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statuses = []

    def record(_: object) -> dict[str, Any]:
        statuses.append(ask(capsys, "collect", repository, "--keep-last", "1"))
        return {}

    Repository.open(repository.as_uri()).publish(KERNEL, [SourceFile("pages", tmp_path / "pages", 0o600)], record)
    [(status, said)] = statuses
    assert status == 1
    assert [one["kernel"] for one in said["skipped"]] == [KERNEL]
    assert left(repository)[-1] == 7
    assert left(repository, OTHER) == [2]


@pytest.mark.parametrize("wrong", [["--keep-last", "-1"], ["--keep-last", "x"], ["--grace", "-5"]])
def test_nonsense_is_refused(repository: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "collect", repository, *wrong)[0] == 2


def test_du(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = ask(capsys, "du", repository)
    assert status == 0
    on_disk = sum(path.stat().st_size for path in (repository / "kernels").rglob("*") if path.is_file())
    assert said["bytes_stored"] == on_disk
    of = {one["kernel"]: one for one in said["kernels"]}
    assert 600_000 < of[KERNEL]["bytes_needed"] < of[KERNEL]["bytes_stored"]
    assert all(100_000 < one["bytes_alone"] < 110_000 for one in of[KERNEL]["generations"])
    assert main(["du", "3f2a", "--repository", str(repository)]) == 0
    assert "GENERATION" in capsys.readouterr().out


def test_damage_is_said_and_nothing_goes(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [manifest] = repository.glob(f"kernels/{KERNEL}/manifests/3-*")
    manifest.write_bytes(manifest.read_bytes()[:-1])
    status, said = ask(capsys, "du", repository, KERNEL)
    assert status == 1
    assert [one["generation"] for one in said["kernels"][0]["damaged"]] == [3]
    status, said = ask(capsys, "collect", repository, KERNEL)
    assert (status, said["bytes_removed"], bool(said["kernels"][0]["problem"])) == (1, 0, True)
    ask(capsys, "collect", repository, KERNEL, "--keep-last", "2")
    assert left(repository) == [5, 6]


def test_list_and_show_offline(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = ask(capsys, "list", repository)
    assert status == 0
    assert {one["kernel_id"]: len(one["generations"]) for one in said["kernels"]} == {KERNEL: 6, OTHER: 2}
    status, said = ask(capsys, "show", repository, "3f")
    assert (status, said["kernel_id"], said["generations"][-1]["generation"]) == (0, KERNEL, 6)
    for verb in (["list"], ["show", "3f"]):
        assert main([*verb, "--repository", str(repository)]) == 0
        assert KERNEL in capsys.readouterr().out
    assert ask(capsys, "show", repository, "5")[0] == 1


def test_the_environment_alone_does_not_mean_offline(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PERDURE_REPOSITORY", str(repository))
    monkeypatch.setenv("PERDURE_AGENT", f"unix://{tmp_path}/nobody.sock")
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"] == []
