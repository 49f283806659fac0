"""What `list` and `show` can tell from a repository alone, when `--repository` is given: no agent is asked, none is needed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from perdure.domain.errors import Corrupt, NotFound, WrongKey
from perdure.domain.ids import KernelId, kernel_id

from .amounts import ago, mib
from .app import PerdureApp
from .connection import pick
from .place import open_repository
from .table import facts, table

if TYPE_CHECKING:
    from perdure.store.repository import Repository

_FIELDS = ("incarnation", "created", "trigger", "engine", "stall_s", "total_s", "execution_count", "busy", "warnings")


def wanted(app: PerdureApp) -> bool:
    """Whether this command line names a repository; a setting or the environment means the agent's kernels there."""
    return any("repository" in section for section in app.cli_config.values())


def show_all(app: PerdureApp) -> int:
    """`list`. Exit status 1 when some snapshot can't be read."""
    repository = open_repository(app)
    kernels = [_kernel(repository, kernel) for kernel in repository.kernels()]
    rows = []
    for one in kernels:
        last = one["generations"][-1] if one["generations"] else {}
        rows.append(
            (
                one["kernel_id"],
                str(one["kernel_name"] or ""),
                str(len(one["generations"])),
                ago(str(last.get("created") or "–"), time.time()),
                mib(last.get("bytes_logical")),
                "; ".join(one["problems"]),
            )
        )
    header = ("KERNEL", "SPEC", "SNAPSHOTS", "LAST", "SIZE", "TROUBLE")
    text = table(header, rows) if rows else f"There is no kernel at {repository.url}."
    app.show({"agent": None, "repository": repository.url, "kernels": kernels}, text)
    return 1 if any(one["problems"] for one in kernels) else 0


def show_one(app: PerdureApp, text: str) -> int:
    """`show KERNEL`."""
    repository = open_repository(app)
    one = _kernel(repository, pick(kernel_id(text), repository.kernels()))
    owner = one["owner"]
    pairs = [
        ("Kernel", one["kernel_id"]),
        ("Spec", str(one["kernel_name"] or "")),
        ("Owner", f"uid {owner['uid']}" if isinstance(owner, dict) and "uid" in owner else ""),
        ("Notebook", str(one["notebook"] or "")),
        ("Repository", repository.url),
        ("Trouble", "\n".join(one["problems"])),
    ]
    rows = [
        (
            str(each["generation"]),
            ago(str(each["created"] or "–"), time.time()),
            str(each["trigger"] or "–"),
            mib(each["bytes_logical"]),
            mib(each["bytes_added"]),
            str(each["host"] or "–"),
        )
        for each in one["generations"]
    ]
    listed = table(("GENERATION", "TAKEN", "TRIGGER", "SIZE", "ADDED", "HOST"), rows) if rows else "No snapshots."
    app.show({**one, "repository": repository.url}, f"{facts(pairs)}\n\n{listed}")
    return 1 if one["problems"] else 0


def _kernel(repository: Repository, kernel: KernelId) -> dict[str, Any]:
    """Whatever the records say; one of another release may say less or more."""
    generations: list[dict[str, Any]] = []
    problems: list[str] = []
    record: dict[str, Any] = {}
    for number in repository.generations(kernel):
        try:
            manifest = repository.manifest(kernel, number)
        except (Corrupt, NotFound, WrongKey) as error:
            problems.append(error.sentence)
            continue
        record = manifest.record
        host = record.get("host")
        generations.append(
            {
                "generation": number,
                **{name: record.get(name) for name in _FIELDS},
                "host": host.get("hostname") if isinstance(host, dict) else None,
                "bytes_logical": manifest.bytes_logical,
                "bytes_added": manifest.bytes_added,
            }
        )
    return {
        "kernel_id": kernel,
        **{name: record.get(name) for name in ("kernel_name", "display_name", "notebook", "owner")},
        "generations": generations,
        "problems": problems,
    }
