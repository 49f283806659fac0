"""Everything that can be said about a restore before it is tried. Nothing is written and nothing is started."""

from __future__ import annotations

import pwd
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from perdure.domain.compat import Finding, Severity, compare_hosts
from perdure.domain.errors import Corrupt, PerdureError
from perdure.domain.files import Action
from perdure.domain.ids import Owner
from perdure.domain.record import HostFacts, Record

from . import credentials, files, reach, shm
from . import images as image
from .ownerfs import Root, as_owner

_SANDBOX_OWN = ("/dev/shm/", "/dev/pts/", "/proc/")
_MEMORY_MARGIN_BYTES = 128 << 20


def preflight(images: Path, record: Record, owner: Owner, host: HostFacts, *, root: str | Path = "/") -> list[Finding]:
    """What is known to go wrong, blockers and warnings. `root`: where the kernel's paths are looked up. Raises nothing."""
    if (record.owner.uid, record.owner.gid) != (owner.uid, owner.gid):
        sentence = f"The snapshot is of a kernel of uid {record.owner.uid}, gid {record.owner.gid}, not of uid {owner.uid}."
        return [Finding(Severity.BLOCKER, f"uid {record.owner.uid}", sentence, hint="Only its owner can restore it.")]
    found = [*compare_hosts(record.host, host), *_user(owner)]
    for check in (
        lambda: _credentials(images, owner),
        lambda: reach.check(images, owner, root),
        lambda: _memory(images),
        lambda: _files(images, record, root),
    ):
        found += _tried(check)
    return found


def _files(images: Path, record: Record, root: str | Path) -> Iterable[Finding]:
    known: set[str] = set()
    for then, decision in files.decisions(record, root):
        known.add(then.path)
        if decision.action is Action.REFUSE:
            yield Finding(Severity.BLOCKER, then.path, decision.sentence, decision.hint, acceptable=decision.acceptable)
        elif decision.action is not Action.KEEP:
            yield Finding(Severity.WARNING, then.path, decision.sentence)
    table = image.open_files(images)
    with Root(root) as opened:
        for path, folder in as_owner(record.owner, lambda: _missing(table, known, opened)):
            what = "The folder " if folder else ""
            hint = "Bring it back, or restore where it exists."
            yield Finding(Severity.BLOCKER, path, f"{what}{path} is missing here.", hint)


def _missing(table: list[image.RegularFile], known: set[str], root: Root) -> list[tuple[str, bool]]:
    """Folders and special files that the tree has open and that aren't there."""
    found: dict[str, bool] = {}
    for entry in table:
        if entry.ghost or entry.path in known or entry.path.startswith(_SANDBOX_OWN) or "link_remap." in entry.path:
            continue
        try:
            root.stat(entry.path, symlinks=True)
        except (FileNotFoundError, NotADirectoryError):
            found[entry.path] = stat.S_ISDIR(entry.mode)
        except OSError:
            continue  # the owner can't look there; reach.py has said so
    return list(found.items())


def _credentials(images: Path, owner: Owner) -> list[Finding]:
    credentials.check(images, owner)
    shm.read_index(images, owner)
    return []


def _memory(images: Path) -> Iterable[Finding]:
    """An image that is larger than memory would end other programs before itself. What is taken now may be free by then (the
    kernel's own former self), so that alone is no reason to refuse."""
    need = sum(path.stat().st_size for path in images.glob("pages-*.img"))
    need += sum(path.stat().st_blocks * 512 for path in images.glob("shm/*"))
    total, available = _memory_bytes("MemTotal"), _memory_bytes("MemAvailable")
    if need + _MEMORY_MARGIN_BYTES > total:
        sentence = f"The kernel needs {need >> 20} MiB of memory, and this host has {total >> 20} MiB."
        yield Finding(Severity.BLOCKER, "memory", sentence, hint="Restore on a host with more memory.")
    elif need + _MEMORY_MARGIN_BYTES > available:
        sentence = f"The kernel needs {need >> 20} MiB of memory, and {available >> 20} MiB are free here."
        yield Finding(Severity.WARNING, "memory", sentence, hint="Free some memory, or restore on another host.")


def _user(owner: Owner) -> list[Finding]:
    try:
        pwd.getpwuid(owner.uid)
    except KeyError:
        sentence = f"There is no user with uid {owner.uid} on this host; the kernel runs under the bare number."
        return [Finding(Severity.WARNING, f"uid {owner.uid}", sentence)]
    return []


def _tried(check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The check's findings; what it raises is a blocker too."""
    try:
        return list(check())
    except PerdureError as error:
        return [_finding(error)]
    except (OSError, ValueError) as error:
        damaged = Corrupt("The image can't be read.", hint="Restore an older generation.", detail=repr(error))
        return [_finding(damaged)]


def _finding(error: PerdureError) -> Finding:
    return Finding(Severity.BLOCKER, error.detail or error.code, error.sentence, error.hint)


def _memory_bytes(name: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise OSError(f"/proc/meminfo has no {name}")
