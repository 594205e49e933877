"""The signature of a task or schedule: the data that it covers, the parsing of keys, and the reasons why a text is
refused.
"""

import hashlib
import hmac
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rota.client.preparation import prepare
from rota.protocol.body import Body, decode_body, encode_body
from rota.protocol.outcome import NotRunnable
from rota.protocol.signatures import (
    MOST_SIGNATURE_BYTES,
    TASK,
    SignatureError,
    SigningSettings,
    schedule_kind,
    without_signature,
)
from rota.tasks import keyring as keyrings
from rota.tasks.call import Call
from rota.tasks.claimed_call import DefaultRunSettings, Preparer, Runnable, Unfit
from rota.tasks.keyring import Keyring, faults_in, keyring_of
from rota.tasks.registry import Registry

OLD, NEW = b"o" * 32, b"n" * 32
BODY = encode_body(Body("1", "mail", "send", [7, " a b "]))


def _keyring(*, required: bool = True, sign_with: str = "new", **keys: bytes) -> Keyring:
    return Keyring(SigningSettings(keys or {"old": OLD, "new": NEW}, sign_with, required))


def test_a_signature_is_that_of_the_documented_algorithm() -> None:
    mac = hmac.new(NEW, b"rota task new\n" + BODY, hashlib.sha256).hexdigest().encode()
    assert _keyring().sign(BODY) == BODY + b" new " + mac


def test_a_signed_text_is_verified_and_returned_without_its_signature() -> None:
    signed = _keyring().sign(BODY)
    assert len(signed) <= len(BODY) + MOST_SIGNATURE_BYTES
    assert _keyring().verify(signed) == (BODY, True)
    assert without_signature(signed) == BODY
    assert decode_body(signed) == decode_body(BODY)


def test_each_accepted_key_verifies_and_only_one_signs() -> None:
    before = _keyring(sign_with="old").sign(BODY)
    assert before != _keyring(sign_with="new").sign(BODY)
    assert _keyring(sign_with="new").verify(before) == (BODY, True)


@pytest.mark.parametrize("at", range(0, len(BODY) + 70, 3))
def test_a_text_with_any_changed_byte_is_refused(at: int) -> None:
    signed = bytearray(_keyring().sign(BODY))
    signed[at] ^= 1
    with pytest.raises(SignatureError):
        _keyring().verify(bytes(signed))


@pytest.mark.parametrize("text", [BODY, BODY + b" ", BODY + b" new", BODY + b" new " + b"z" * 64, b"", b"x y z"])
def test_a_text_without_a_signature_is_refused_only_if_signatures_are_required(text: bytes) -> None:
    assert _keyring(required=False).verify(text) == (text, False)
    with pytest.raises(SignatureError, match="not signed"):
        _keyring().verify(text)


def test_a_signature_with_an_unknown_key_names_the_key() -> None:
    with pytest.raises(SignatureError, match="'older'"):
        _keyring(required=False).verify(_keyring(older=OLD, sign_with="older").sign(BODY))


def test_a_signature_for_a_schedule_is_no_signature_for_a_task_or_another_schedule() -> None:
    signed = _keyring().sign(BODY, schedule_kind("nightly"))
    assert _keyring().verify(signed, schedule_kind("nightly")) == (BODY, True)
    for kind in (TASK, schedule_kind("hourly")):
        with pytest.raises(SignatureError, match="wrong"):
            _keyring().verify(signed, kind)


def _prepared(raw: bytes, task_id: str = "1", queue: str = "mail", *, required: bool = True) -> Runnable | Unfit:
    return Preparer(Registry(), DefaultRunSettings(1), _keyring(required=required)).prepare(raw, task_id, queue)


@pytest.mark.parametrize(
    ("task_id", "queue", "why"), [("2", "mail", "for the id '1'"), ("1", "admin", "for the queue 'mail'")]
)
def test_a_signed_body_is_refused_under_another_id_or_in_another_queue(task_id: str, queue: str, why: str) -> None:
    found = _prepared(_keyring().sign(BODY), task_id, queue)
    assert isinstance(found, Unfit)
    assert found.fault is NotRunnable.SIGNATURE
    assert why in found.error


def test_an_unsigned_body_is_dead_before_it_is_decoded() -> None:
    found = _prepared(b"\xff not JSON")
    assert isinstance(found, Unfit)
    assert found.fault is NotRunnable.SIGNATURE


def test_a_body_above_the_limit_is_refused_before_it_is_verified() -> None:
    found = _prepared(b"[" + b"x" * 2000)
    assert isinstance(found, Unfit)
    assert found.fault is NotRunnable.GARBAGE


def test_a_right_signature_leads_on_to_the_name() -> None:
    found = _prepared(_keyring().sign(BODY))
    assert isinstance(found, Unfit)
    assert found.fault is NotRunnable.UNKNOWN_TASK


def test_a_delayed_task_is_refused_if_it_would_start_long_before_its_signed_time() -> None:
    call = Call("send", [7], queue="mail", id="1", delay=600)
    early = _prepared(prepare(call, Registry(), 1, _keyring()).body)
    assert isinstance(early, Unfit)
    assert early.fault is NotRunnable.SIGNATURE
    assert "before the time that was signed" in early.error
    soon = Call("send", [7], queue="mail", id="1", delay=30)
    in_time = _prepared(prepare(soon, Registry(), 1, _keyring()).body)
    assert isinstance(in_time, Unfit)
    assert in_time.fault is NotRunnable.UNKNOWN_TASK


def test_the_size_limit_applies_to_the_body_without_its_signature() -> None:
    filled = Call("send", ["x" * 900], queue="mail")
    assert len(prepare(filled, Registry(), 1, _keyring()).body) > len(prepare(filled, Registry(), 1).body)


def test_a_key_file_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyrings, "_CHECK_SECONDS", 0.0)
    file = tmp_path / "key"
    file.write_bytes(OLD + b"\n")
    keyring = Keyring(SigningSettings({"k": f"file:{file}"}, "k"))
    before = keyring.sign(BODY)
    replacement = tmp_path / "next"
    replacement.write_bytes(NEW)
    replacement.replace(file)
    assert keyring.sign(BODY) != before
    with pytest.raises(SignatureError, match="wrong"):
        keyring.verify(before)


@pytest.mark.parametrize("change", [Path.unlink, lambda file: file.write_bytes(b"short")], ids=["gone", "short"])
def test_a_key_stays_in_use_if_its_file_no_longer_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], Any]
) -> None:
    monkeypatch.setattr(keyrings, "_CHECK_SECONDS", 0.0)
    file = tmp_path / "key"
    file.write_bytes(OLD)
    keyring = Keyring(SigningSettings({"k": f"file:{file}"}, "k"))
    before = keyring.sign(BODY)
    change(file)
    assert keyring.sign(BODY) == before


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "SIGNING_KEY", NEW.decode())
    from_environment = Keyring(SigningSettings({"new": "env:SIGNING_KEY"}, "new"))
    assert from_environment.sign(BODY) == _keyring().sign(BODY)


@pytest.mark.parametrize(
    ("settings", "setting", "why"),
    [
        (SigningSettings({"k": "a-secret-that-is-no-source-at-all"}, "k"), "keys.k", 'expected "file:PATH"'),
        (SigningSettings({"k": "file:/nowhere/key"}, "k"), "keys.k", "/nowhere/key cannot be read"),
        (SigningSettings({"k": "env:NOT_SET"}, "k"), "keys.k", "NOT_SET has 0 bytes"),
        (SigningSettings({"k": b"short"}, "k"), "keys.k", "at least 32"),
        (SigningSettings({"a b": NEW}, "a b"), "keys", "letters"),
        (SigningSettings({"k": NEW}, "other"), "sign_with", "(k)"),
        (SigningSettings({}, "k"), "sign_with", "no keys"),
        (SigningSettings({}, required=True), "keys", "no key"),
    ],
)
def test_a_fault_in_the_settings_says_what_to_do_and_shows_no_key(
    settings: SigningSettings, setting: str, why: str
) -> None:
    faults = faults_in(settings)
    assert why in faults[setting]
    assert "a-secret" not in str(faults)
    with pytest.raises(ValueError, match="signing"):
        Keyring(settings)


def test_without_keys_there_is_no_keyring() -> None:
    assert keyring_of(None) is None
    assert keyring_of(SigningSettings()) is None
