"""The kernel's own address."""

from __future__ import annotations

import os
import socket

import pytest
from jupyter_client.manager import AsyncKernelManager
from perdure.domain.endpoint import Endpoint
from perdure.domain.ids import KernelId
from perdure.jupyter import endpoints


@pytest.fixture
def kernel() -> KernelId:
    return KernelId(os.urandom(16).hex())


def test_first_choice_is_the_kernels_own(kernel: KernelId) -> None:
    assert endpoints.choose(kernel, "key") == Endpoint.for_kernel(kernel, "key")


@pytest.mark.parametrize("channel", ["shell", "hb"])
def test_address_that_is_taken_is_passed_by(kernel: KernelId, channel: str) -> None:
    own = Endpoint.for_kernel(kernel, "key")
    with socket.socket() as other:
        other.bind((own.ip, own.ports[channel]))
        other.listen()
        assert endpoints.choose(kernel, "key") == Endpoint.for_kernel(kernel, "key", attempt=1)


def test_no_address_free(kernel: KernelId, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "ATTEMPTS", 1)
    own = Endpoint.for_kernel(kernel, "key")
    with socket.socket() as other:
        other.bind((own.ip, own.ports["iopub"]))
        other.listen()
        with pytest.raises(OSError):
            endpoints.choose(kernel, "key")


def test_manager_and_back(kernel: KernelId) -> None:
    manager = AsyncKernelManager(kernel_name="some")
    endpoint = Endpoint.for_kernel(kernel, manager.session.key.decode(), kernel_name="some")
    endpoints.apply(endpoint, manager)
    assert endpoints.of(manager) == endpoint
    assert endpoints.of(manager).to_json()["shell_port"] == manager.shell_port
    manager.context.destroy(linger=0)


def test_encryption_keys_are_made_once_and_travel_with_the_endpoint(kernel: KernelId) -> None:
    manager = AsyncKernelManager(kernel_name="some")
    if not hasattr(manager, "transport_encryption"):
        pytest.skip("this jupyter_client knows no encryption")
    endpoints.encrypt(manager, None)
    assert manager.curve_publickey is None
    endpoints.encrypt(manager, "required")
    first = manager.curve_publickey
    endpoints.encrypt(manager, "required")
    assert manager.curve_publickey == first
    endpoints.apply(Endpoint.for_kernel(kernel, "key"), manager)
    assert endpoints.of(manager).extra["curve_publickey"] == first.decode()
    manager.context.destroy(linger=0)
