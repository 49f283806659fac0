"""CRIU and GPUs."""

from __future__ import annotations

from typing import Any

from perdure.domain.errors import NotProtected

from .check import Check


def criu() -> tuple[Check, dict[str, str] | None]:
    """The check, and {path, version} of a good one."""
    from perdure.engine.criu import find

    means = "CRIU writes a kernel's processes down and brings them back."
    try:
        found = find()
    except NotProtected as error:
        return Check("criu", False, error.sentence, means, error.hint), None
    return Check("criu", True, f"{found.name} at {found.path}", means), {"path": str(found.path), "version": found.name}


def gpus() -> tuple[Check, list[dict[str, Any]]]:
    """None is fine: kernels that compute on the CPU are protected all the same."""
    import pynvml

    means = "GPU memory belongs to a kernel's state; a host without one protects all other kernels."
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Check("gpu", True, f"none ({error})", means, needed=False), []
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        found = [_gpu(pynvml, number) for number in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        return Check("gpu", False, f"the driver does not answer: {error}", means, "nvidia-smi says more.", needed=False), []
    finally:
        pynvml.nvmlShutdown()
    names = ", ".join(gpu["name"] for gpu in found) or "none"
    return Check("gpu", True, f"{names}; driver {driver}", means, needed=False), found


def _gpu(nvml: Any, number: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    return {
        "name": str(nvml.nvmlDeviceGetName(handle)),
        "uuid": str(nvml.nvmlDeviceGetUUID(handle)),
        "memory_bytes": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
    }
