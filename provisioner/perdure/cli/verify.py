"""`perdure verify [KERNEL]`: whether what is stored is whole. It reads the repository itself, so it works without an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traitlets import Bool

from perdure.domain.ids import kernel_id

from .amounts import mib
from .app import FLAGS, PerdureApp
from .connection import pick
from .place import open_repository

if TYPE_CHECKING:
    from perdure.store.repository import VerifyReport

_FLAGS = {
    **FLAGS,
    "data": ({"VerifyApp": {"data": True}}, "read and hash every block, instead of looking at names and sizes only"),
}


class VerifyApp(PerdureApp):
    """Check that every snapshot in the repository, or one kernel's, is there in full.

    Exit status 1 when something is damaged: then it names the object and the generations that need it.
    """

    name = "perdure-verify"
    description = __doc__
    arguments = ("[KERNEL]",)
    flags = _FLAGS
    examples = """
    perdure verify
    perdure verify 3f --data --repository /mnt/backup/perdure
    """
    data = Bool(False, help="Read and hash every block.").tag(config=True)

    def act(self, *arguments: str) -> int:
        repository = open_repository(self)
        kernel = pick(kernel_id(arguments[0]), repository.kernels()) if arguments else None
        report = repository.verify(kernel, data=self.data)
        self.show(
            {"repository": repository.url, "data": self.data, **report.to_json()}, _text(repository.url, report, data=self.data)
        )
        return 0 if report.ok else 1


def _text(url: str, report: VerifyReport, *, data: bool) -> str:
    whole = sum(one.ok for one in report.generations)
    lines = [f"{kernel}: {problem}" for kernel, problem in report.damaged_kernels.items()]
    for one in report.generations:
        lines += [f"{one.kernel}, generation {one.generation}: {problem}" for problem in one.problems]
    how = f"{mib(report.bytes_read)} were read and hashed" if data else "names and sizes were compared; --data reads every block"
    lines.append(f"{whole} of {len(report.generations)} snapshots at {url} are whole ({how}).")
    if report.unreferenced_packs:
        lines.append(
            f"{report.unreferenced_packs} files with {mib(report.unreferenced_bytes)} belong to no snapshot; "
            "the next snapshot of their kernel removes them, and so does `perdure collect`."
        )
    return "\n".join(lines)
