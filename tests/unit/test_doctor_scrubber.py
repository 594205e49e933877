"""The scrubber of `rota doctor --bundle` removes every secret, and keeps other values."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_supervisor.doctor.scrubber import (
    LEAST_CHARACTERS,
    Scrubber,
    is_secret_name,
    secrets_in_arguments,
    secrets_in_environment,
    secrets_in_url,
)

SECRET = "S3cr-et/+ \"q'\\é"
PLAIN = Scrubber([])


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        json.dumps(SECRET),
        json.dumps(json.dumps(SECRET)),
        json.dumps(SECRET, ensure_ascii=False),
        repr(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_known_secret_is_found_with_any_escaping(form: str) -> None:
    cleaned = Scrubber([SECRET]).text(f"before {form} after")
    assert "S3cr" not in cleaned
    assert cleaned.startswith("before ")
    assert cleaned.endswith(" after")
    assert form not in cleaned


@given(st.text(min_size=LEAST_CHARACTERS).filter(lambda text: text.strip() == text), st.text())
def test_any_known_secret_is_removed_from_any_document(secret: str, other: str) -> None:
    document = Scrubber([secret]).document({"a": f" {secret} ", "b": [other, {secret: f" {secret}"}]})
    values = json.loads(document)
    assert values["a"].strip() != secret
    assert secret not in [*values["b"][1], *values["b"][1].values()]


def test_a_short_secret_is_replaced_only_as_a_whole_word() -> None:
    cleaned = Scrubber(["red"]).text("AUTH red; a redis that has read red")
    assert cleaned == "AUTH ***; a redis that has read ***"


def test_a_secret_of_two_letters_is_not_replaced() -> None:
    assert Scrubber(["ab", ""]).text("ab abc") == "ab abc"


LOOKS_SECRET = {
    "redis://u:S3cr-et@h:6379/0": "redis://u:***@h:6379/0",
    "rediss://:S3cr@et@h": "rediss://:***@h",
    "postgres://S3cr-et@db/shop": "postgres://***@db/shop",
    "password=S3cr-et": "password=***",
    "DB_PASSWORD: S3cr-et": "DB_PASSWORD: ***",
    "api_key='S3cr et'": "api_key=***",
    'secret = "S3cr \\" et"': "secret = ***",
    '{\\"token\\": \\"S3cr et\\"}': '{\\"token\\": ***}',
    "Authorization: Bearer S3cr-et.abcdef": "Authorization: ***",
    "sent Bearer S3cr-et.abcdef1": "sent Bearer ***",
    "AWS_SECRET_ACCESS_KEY=S3cr/et+": "AWS_SECRET_ACCESS_KEY=***",
    "?access_token=S3cr-et&page=2": "?access_token=***&page=2",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJTM2NyIn0.S3cret": "***",
    "key AKIAIOSFODNN7EXAMPLE used": "key *** used",
    "-----BEGIN PRIVATE KEY-----\nS3cr\n-----END PRIVATE KEY-----\nrest": "***\nrest",
    "-----BEGIN RSA PRIVATE KEY-----\nS3cr cut off": "***",
}


@pytest.mark.parametrize(("text", "cleaned"), LOOKS_SECRET.items())
def test_the_scrubber_replaces_values_that_look_like_secrets(text: str, cleaned: str) -> None:
    assert PLAIN.text(text) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        'rota_tasks_processed_total{queue="password-reset",task="reset_password",outcome="done"} 5',
        "redis://127.0.0.1:6379/0 is up",
        "token_file = /etc/rota/token",
        'redis_credentials = "shop.auth:login"',
        "the task send_token ended after 3 s",
        "mail to a@example.com",
        "rota_doorbell_rescues_total 7",
    ],
)
def test_the_scrubber_keeps_values_that_are_not_secret(text: str) -> None:
    assert PLAIN.text(text) == text


def test_values_under_secret_names_are_replaced_in_documents() -> None:
    values = {
        "password": "x y z",
        "queues": {"password-reset": {"ready": 3}},
        "token": "",
        "tokens": 5,
        "args": ["api_key=S3cr-et"],
        "nested": [{"client_secret": "a"}],
    }
    assert PLAIN.values(values) == {
        "password": "***",
        "queues": {"password-reset": {"ready": 3}},
        "token": "",
        "tokens": 5,
        "args": ["api_key=***"],
        "nested": [{"client_secret": "***"}],
    }


def test_scrubbed_log_lines_are_still_valid_json() -> None:
    line = json.dumps({"event": "task.dead", "error": 'refused: "password": "S3cr et"', "token": "S3cr et"})
    first, second, _ = PLAIN.lines(f"{line}\npassword=S3cr-et plain\n").split("\n")
    assert json.loads(first)["token"] == "***"
    assert "S3cr" not in first
    assert second == "password=*** plain"


@pytest.mark.parametrize(
    "name", ["DB_PASSWORD", "passwd", "client_secret", "API-KEY", "apikeys", "accessKey", "DB_PWD"]
)
def test_a_name_that_suggests_a_secret_is_recognized(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["PWD", "OLDPWD", "token_file", "redis_tls_key", "redis_credentials", "keys", "author"]
)
def test_similar_but_harmless_names_are_not_taken_for_secret_names(name: str) -> None:
    assert not is_secret_name(name)


def test_secrets_are_collected_from_the_environment() -> None:
    environment = {
        "DATABASE_URL": "postgres://shop:pg-S3cr@db/shop",
        "STRIPE_API_KEY": "sk-S3cr",
        "PWD": "/srv/rota",
        "SECRET_FILE": "/run/secrets/a",
        "USE_TOKEN": "true",
    }
    assert sorted(secrets_in_environment(environment)) == ["pg-S3cr", "sk-S3cr"]


def test_the_secret_of_a_url_is_its_password_or_user() -> None:
    assert list(secrets_in_url("redis://u:p1@h and redis://only@h and redis://h/0")) == ["p1", "only"]


def test_only_task_arguments_that_look_secret_are_collected() -> None:
    arguments = [["everybody", "f3a9c0d1e2b4"], {"password": "short", "options": {"size": "large"}, "keys": ["a"]}]
    assert sorted(secrets_in_arguments(arguments)) == ["f3a9c0d1e2b4", "short"]
