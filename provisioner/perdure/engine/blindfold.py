"""The agent's end of perdure-blindfold.so (native/shadow/blindfold.c): arms it, reads what it hid from CRIU and left behind."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import TracebackType

from perdure.domain.errors import NotLive

from . import images as image

_NS = 1e-9


@dataclass(frozen=True)
class Area:
    """Part of a process's memory that CRIU was told nothing of. Addresses in bytes; `pages` of 4 KiB that exist in it."""

    start: int
    end: int
    pages: int


@dataclass
class Report:
    """Pids as in the sandbox."""

    hidden: dict[int, list[Area]] = field(default_factory=dict)
    """Ascending."""
    twins: dict[int, int] = field(default_factory=dict)
    """Process -> its twin, which stands still until somebody ends it."""
    failures: list[str] = field(default_factory=list)
    twins_s: float = 0.0
    """How long the making of twins took."""
    complete: bool = False
    """It was written to its end."""

    def defect(self) -> str:
        """Why the image can't be completed; nothing when it can."""
        if self.failures:
            return "; ".join(self.failures)
        if missing := self.hidden.keys() - self.twins.keys():
            return f"process {min(missing)} has no shadow"
        return "" if self.complete else "what was hidden from CRIU could not be reported"


def library() -> Path | None:
    found = Path(str(files("perdure") / "bin" / "perdure-blindfold.so"))
    return found if found.is_file() else None


class Blindfold:
    """For one CRIU. Use it as a context manager."""

    def __init__(self) -> None:
        self._arm = os.memfd_create("perdure-arm")
        self._report = os.memfd_create("perdure-report")
        os.truncate(self._arm, mmap.PAGESIZE)
        self.library = library()

    def __enter__(self) -> Blindfold:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._arm)
        os.close(self._report)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """CRIU must inherit these, with their numbers."""
        return (self._arm, self._report)

    @property
    def environment(self) -> dict[str, str]:
        return {"PERDURE_BLINDFOLD": f"{self._arm} {self._report}"}

    def arm(self, images: Path) -> None:
        """The dump is good: twins are made before the first thread goes on. Raises NotLive when the user could see them."""
        if found := image.subreapers(images):
            raise NotLive(
                "The kernel can't be saved while it runs.",
                detail=f"process {found[0]} takes on orphaned processes (PR_SET_CHILD_SUBREAPER), and would get the shadows",
            )
        os.pwrite(self._arm, b"\1\0\0\0", 0)

    def report(self) -> Report:
        """After CRIU's end."""
        size = os.fstat(self._report).st_size
        return parse(os.pread(self._report, size, 0).decode(errors="replace"))


def parse(text: str) -> Report:
    """What isn't understood counts as a failure: an area that isn't known can't be stored."""
    report = Report()
    for line in text.splitlines():
        match line.split():
            case ["hidden", pid, start, end, pages]:
                report.hidden.setdefault(int(pid), []).append(Area(int(start, 16), int(end, 16), int(pages)))
            case ["twin", pid, twin]:
                report.twins[int(pid)] = int(twin)
            case ["twins", begun, ended]:
                report.twins_s = (int(ended) - int(begun)) * _NS
                report.complete = True
            case ["failed", pid, *why]:
                report.failures.append(f"process {pid}: {' '.join(why)}")
            case ["partly", pid, start, end]:
                report.failures.append(f"process {pid}: CRIU asked for a part of {start}-{end}")
            case _:
                report.failures.append(f"not understood: {line!r}")
    return report
