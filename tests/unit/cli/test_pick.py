"""Which kernel a KERNEL argument means."""

from __future__ import annotations

import pytest
from perdure.cli.connection import pick
from perdure.domain.errors import BadRequest, NotFound
from perdure.domain.ids import KernelId

KERNELS = [KernelId(name) for name in ("3f2a", "3f2b", "3f", "77", "a-b_c")]


@pytest.mark.parametrize(("prefix", "meant"), [("3f2a", "3f2a"), ("3f", "3f"), ("7", "77"), ("a-", "a-b_c")])
def test_one(prefix: str, meant: str) -> None:
    assert pick(prefix, KERNELS) == meant


def test_several_are_listed() -> None:
    with pytest.raises(BadRequest) as caught:
        pick("3f2", KERNELS)
    assert {"3f2a", "3f2b"} <= set(caught.value.hint.replace(",", " ").replace(".", " ").split())
    assert "77" not in caught.value.hint


@pytest.mark.parametrize("kernels", [KERNELS, []])
def test_none(kernels: list[KernelId]) -> None:
    with pytest.raises(NotFound):
        pick("f2", kernels)
