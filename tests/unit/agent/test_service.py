"""The unit file: what kernels' lives depend on stands in it."""

from __future__ import annotations

import configparser
from pathlib import Path

import perdure.agent


def test_kernels_outlive_the_service() -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(Path(perdure.agent.__file__).with_name("perdure.service").read_text())
    service = unit["Service"]
    assert service["KillMode"] == "process"
    assert service["OOMPolicy"] == "continue"
    assert service["Restart"] == "always"
    assert service["StateDirectoryMode"] == "0700"
    assert service["ExecStart"].split()[1] == "agent"
    hidden = {"PrivateTmp", "ProtectSystem", "ProtectHome", "NoNewPrivileges", "MemoryMax", "OOMScoreAdjust", "PrivateDevices"}
    assert not hidden & set(service)
