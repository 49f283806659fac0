"""Where keys come from: whoever wanted encryption gets it, or an error, never plain text."""

from __future__ import annotations

import os
import pickle
import shlex
import sys
import time
from pathlib import Path

import pytest
from perdure.domain.errors import NoKey
from perdure.store import keycommand, keys
from perdure.store.repository import Repository
from perdure.store.settings import StoreSettings

from tests.unit.store.sealed import NEW, OLD, key_file


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in keys.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def printing(text: str) -> str:
    return shlex.join([sys.executable, "-c", f"print({text!r})"])


def test_a_key_survives_its_text() -> None:
    key = keys.new()
    assert keys.parse("It", key.text).all == (key,)
    assert keys.new() != key
    assert len(key.id) == 16


def test_a_key_is_in_no_message() -> None:
    key = keys.new()
    assert key.secret.hex() not in f"{key!r} {keys.Keys((key,))}"
    assert repr(key.secret) not in repr(key)
    with pytest.raises(NoKey) as caught:
        keys.parse("It", f"{key.text[:-1]}g")
    shown = f"{caught.value} {caught.value.detail} {caught.value.to_json()}"
    assert not any(key.secret.hex()[at : at + 8] in shown for at in range(0, 56, 8))


def test_the_three_sources(tmp_path: Path) -> None:
    file = key_file(tmp_path / "key", NEW, OLD)
    expected = keys.Keys((NEW, OLD))
    text = f"# made in winter\n\n  {NEW.text}\r\n{OLD.text}\n{NEW.text}\n"
    assert keys.load(StoreSettings(key_file=str(file)), {}) == expected
    assert keys.load(StoreSettings(key_variable="K"), {"K": text}) == expected
    assert keys.load(StoreSettings(key_command=printing(text)), {}) == expected
    assert keys.load(StoreSettings(), {}) is None
    assert expected.writing == NEW
    assert expected.find(OLD.id) == OLD
    assert expected.find(bytes(16)) is None


@pytest.mark.parametrize(
    "settings",
    [
        StoreSettings(key_file="/a", key_variable="K"),
        StoreSettings(key_file="/a", key_command="true"),
        StoreSettings(key_variable="K", key_command="true"),
        StoreSettings(key_variable="K"),
        StoreSettings(key_command="'"),
        StoreSettings(key_command=" "),
        StoreSettings(key_command="true"),
        StoreSettings(key_command="false"),
        StoreSettings(key_command=printing(NEW.text) + " 7; exit 1"),
        StoreSettings(key_command="/nowhere/at/all"),
        StoreSettings(key_command=f"sh -c 'echo {NEW.text}; exit 3'"),
        StoreSettings(key_command="head -c 100000 /dev/zero"),
        StoreSettings(key_command="head -c 1000 /dev/urandom"),
    ],
)
def test_half_a_configuration(settings: StoreSettings, tmp_path: Path) -> None:
    if settings.key_command.endswith("exit 1"):
        # Arguments, not a shell's commands: they change nothing here.
        assert keys.load(settings, {}) == keys.Keys((NEW,))
        return
    with pytest.raises(NoKey):
        keys.load(settings, {})
    with pytest.raises(NoKey):
        Repository.open((tmp_path / "repository").as_uri(), settings=settings)
    assert not (tmp_path / "repository").exists()


@pytest.mark.parametrize("name", keys.ENVIRONMENT)
def test_a_variable_that_nobody_minds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """A template that left it empty, or a caller that has forgotten to pass it on."""
    for value in ("", NEW.text):
        monkeypatch.setenv(name, value)
        with pytest.raises(NoKey):
            Repository.open((tmp_path / "repository").as_uri())
    assert not (tmp_path / "repository").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n# only words\n",
        "secret",
        "00" * 32,
        NEW.text[:-2],
        f"{NEW.text} {OLD.text}",
        NEW.text.upper(),
        NEW.text.replace("key-1", "key-2"),
        NEW.text[:-2] + "00",
        f"{NEW.text}\nmore",
        f"perdure-key-1:{OLD.id.hex()}:{NEW.secret.hex()}",
        f"{NEW.text}\0",
    ],
)
def test_what_is_no_key(tmp_path: Path, text: str) -> None:
    file = key_file(tmp_path / "key")
    file.write_text(text)
    with pytest.raises(NoKey):
        keys.from_file(file)
    with pytest.raises(NoKey):
        keys.load(StoreSettings(key_variable="K"), {"K": text})


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666, 0o610])
def test_a_file_that_is_open_to_others(tmp_path: Path, mode: int) -> None:
    file = key_file(tmp_path / "key", NEW)
    file.chmod(mode)
    with pytest.raises(NoKey):
        keys.from_file(file)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_a_file_that_is_closed(tmp_path: Path, mode: int) -> None:
    file = key_file(tmp_path / "key", NEW)
    file.chmod(mode)
    link = tmp_path / "link"
    link.symlink_to(file)  # secrets are mounted like that
    assert keys.from_file(link).writing == NEW


@pytest.mark.root
def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    file = key_file(tmp_path / "key", NEW)
    os.chown(file, 65534, 65534)
    with pytest.raises(NoKey):
        keys.from_file(file)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    (tmp_path / "large").touch(0o600)
    (tmp_path / "large").write_text(f"{NEW.text}\n" * 2000)
    for name in ("pipe", "folder", "missing", "large"):
        with pytest.raises(NoKey):
            keys.from_file(tmp_path / name)


def test_a_command_that_hangs_ends_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keycommand, "TIMEOUT_S", 0.5)
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $$ $! > {pids}; wait"
    began = time.monotonic()
    with pytest.raises(NoKey):
        keycommand.output(shlex.join(["sh", "-c", script]))
    assert time.monotonic() - began < 10
    for pid in pids.read_text().split():
        assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_keys_are_values() -> None:
    assert pickle.loads(pickle.dumps(NEW)) == NEW
    assert len({NEW, OLD, keys.Key(NEW.secret)}) == 2
