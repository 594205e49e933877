"""A server that uses TLS and requires a certificate from its clients. `redis_tls_ca`, `redis_tls_cert` and
`redis_tls_key` apply to the client and to every process of a fleet.
"""

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rota
from rota.client.default_clients import resolve
from rota.tasks.fleet_settings import ClientSettings
from support.certificates import Certificate, certificate
from support.fleet_process import rota as run_rota
from support.fleet_process import toml
from support.fleets import RunningFleet
from support.servers import ClusterNode, Server, free_port, server_binaries
from support.waiting import until


class SecureServer(NamedTuple):
    """A TLS server: its URL, its certificate, and the certificate authority that it trusts."""

    url: str
    shown: Certificate
    trusted: Certificate

    @property
    def files(self) -> dict[str, Any]:
        return {
            "redis_tls_ca": str(self.shown.cert),
            "redis_tls_cert": str(self.trusted.cert),
            "redis_tls_key": str(self.trusted.key),
        }


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    binary = server_binaries().get("redis")
    if binary is None or shutil.which("openssl") is None:
        pytest.skip("TLS needs a redis-server and openssl on the PATH")
    folder = tmp_path_factory.mktemp("tls")
    shown, trusted = certificate(folder, "server"), certificate(folder, "client")
    files = {"tls_cert_file": str(shown.cert), "tls_key_file": str(shown.key), "tls_ca_cert_file": str(trusted.cert)}
    port = free_port()
    server = Server(binary, folder, tls_port=str(port), tls_auth_clients="yes", **files).start()
    yield SecureServer(f"rediss://127.0.0.1:{port}/0", shown, trusted)
    server.stop()


def test_the_fleet_clients_and_commands_use_and_verify_certificates(
    secure: SecureServer, namespace: str, tmp_path: Path
) -> None:
    for each in (*secure.shown, *secure.trusted):
        shutil.copy(each, tmp_path)
    relative: dict[str, Any] = {key: Path(file).name for key, file in secure.files.items()}
    pools = {"plain": {"workers": 1}, "many": {"workers": 1, "concurrency": 4, "queues": ["other"]}}
    tiers = [["default", "other"]]
    fleet = RunningFleet(secure.url, namespace, tmp_path, pools=pools, tiers=tiers, pollers=2, **relative)
    fleet.client = rota.Client(secure.url, namespace, **secure.files, **fleet.signing_options)
    try:
        fleet.start()
        with fleet.client as client:
            handles = [client.enqueue("note", args=[key], queue="default", delay=0.1) for key in ("a", "b")]
            until(lambda: all(handle.status().state == "done" for handle in handles), "tasks done after a delay")
        until(lambda: "rota_queue_ready_tasks" in fleet.get("/metrics")[1], "the exporter has read the queues")
        for command in (["check"], ["queue", "ls"], ["audit"], ["task", "enqueue", "note", "c"]):
            done = fleet.rota(*command)
            assert done.returncode == 0, (command, done.stderr)
    finally:
        fleet.close()


def test_clients_take_tls_files_from_arguments_and_configuration(
    secure: SecureServer, namespace: str, tmp_path: Path
) -> None:
    async def enqueue() -> None:
        async with rota.AsyncClient(secure.url, namespace, **secure.files) as client:
            await client.enqueue("work", queue="q", id="a")
            async with client.consumer("q") as consumer:
                async for task in consumer:
                    await task.done()
                    break

    asyncio.run(enqueue())
    (tmp_path / "rota.toml").write_text(toml({"redis_url": secure.url, "redis_tls_ca": "ca.pem"}))
    found = resolve(ClientSettings(), {"ROTA_REDIS_TLS_CERT": "cert.pem"}, tmp_path)
    assert (found.redis_tls_ca, found.redis_tls_cert) == (str(tmp_path / "ca.pem"), "cert.pem")
    elsewhere = resolve(ClientSettings(redis_url="redis://elsewhere"), {"ROTA_REDIS_TLS_CA": "ca.pem"}, tmp_path)
    assert elsewhere.redis_tls_ca is None  # these files are not used for a server without TLS


FAULTS = {
    "nobody": ({}, (69, "set redis_tls_ca (ROTA_REDIS_TLS_CA) to a file")),
    "ours": (
        {"redis_tls_ca": "shown"},
        (69, "set redis_tls_cert and redis_tls_key to a client certificate that the server trusts"),
    ),
    "wrong": ({"redis_tls_ca": "client"}, (69, "set redis_tls_ca (ROTA_REDIS_TLS_CA) to a file")),
    "no PEM": ({"redis_tls_ca": "nothing"}, (78, "nothing.pem: expected a certificate in PEM format")),
}


@pytest.mark.parametrize(("names", "refusal"), FAULTS.values(), ids=FAULTS)
def test_a_refused_certificate_is_reported_with_the_setting(
    secure: SecureServer, namespace: str, tmp_path: Path, names: dict[str, str], refusal: tuple[int, str]
) -> None:
    code, message = refusal
    files: dict[str, Any] = {key: str(tmp_path / f"{name}.pem") for key, name in names.items()}
    shutil.copy(secure.shown.cert, tmp_path / "shown.pem")
    shutil.copy(secure.trusted.cert, tmp_path / "client.pem")
    (tmp_path / "nothing.pem").write_text("nothing\n")
    (tmp_path / "rota.toml").write_text(toml({"redis_url": secure.url, "namespace": namespace, **files}))
    checked = run_rota(tmp_path, "check", "--no-imports")
    assert (checked.returncode, message in checked.stderr) == (code, True), checked.stderr
    assert "start the server" not in checked.stderr
    with rota.Client(secure.url, namespace, **files) as client, pytest.raises(rota.Unavailable) as refused:
        client.enqueue("work", queue="q")
    assert message in str(refused.value)

    async def enqueue() -> None:
        async with rota.AsyncClient(secure.url, namespace, **files) as client:
            await client.enqueue("work", queue="q")

    with pytest.raises(rota.Unavailable) as refused:
        asyncio.run(enqueue())
    assert message in str(refused.value)


def test_a_refused_connection_is_not_reported_as_a_tls_error(namespace: str, tmp_path: Path) -> None:
    url = f"rediss://127.0.0.1:{free_port()}/0"

    async def enqueue() -> None:
        async with rota.AsyncClient(url, namespace) as client:
            await client.enqueue("work", queue="q")

    with pytest.raises(rota.Unavailable) as refused:
        asyncio.run(enqueue())
    assert "redis_tls" not in str(refused.value)
    (tmp_path / "rota.toml").write_text(toml({"redis_url": url}))
    checked = run_rota(tmp_path, "check", "--no-imports")
    assert (checked.returncode, "Connection refused: start the server" in checked.stderr) == (69, True), checked.stderr


def test_in_a_cluster_the_node_with_the_hash_slot_is_reached_with_tls(
    secure: SecureServer, namespace: str, tmp_path: Path
) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(secure.shown.cert.read_bytes() + secure.trusted.cert.read_bytes())
    files = {"cert_file": secure.shown.cert, "key_file": secure.shown.key, "ca_cert_file": trusted}
    options = {"tls_cluster": "yes", "tls_auth_clients": "yes"} | {
        f"tls_{key}": str(file) for key, file in files.items()
    }
    cluster = ClusterNode(server_binaries()["redis"], tmp_path / "node", **options)
    for node in (cluster, cluster.other):
        node.options["tls_port"] = str(free_port())
    cluster.start()
    try:
        url = f"rediss+cluster://127.0.0.1:{cluster.other.options['tls_port']}"
        with rota.Client(url, namespace, **secure.files) as client:
            client.enqueue("work", queue="default")
            assert [each.ready for each in client.queues()] == [1]
        settings = {"redis_url": url, "namespace": namespace, **secure.files}
        (tmp_path / "rota.toml").write_text(toml(settings))
        checked = run_rota(tmp_path, "check", "--no-imports")
        assert checked.returncode == 0, checked.stderr
    finally:
        cluster.stop()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"redis_tls_ca": "none.pem"}, "none.pem cannot be read: No such file or directory"),
        (
            {"redis_tls_cert": "some.pem"},
            "redis_tls_key: for a client certificate, set both redis_tls_cert and redis_tls_key",
        ),
        (
            {"redis_tls_ca": "some.pem", "redis_tls_key": "some.pem"},
            "redis_tls_cert: for a client certificate, set both redis_tls_cert and redis_tls_key",
        ),
        (
            {"redis_tls_ca": "some.pem", "redis_url": "redis://127.0.0.1"},
            "redis_url does not use TLS, so redis_tls_ca must not be set: begin redis_url with rediss://",
        ),
    ],
)
def test_check_reports_unusable_tls_files_as_configuration_faults(
    tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    (tmp_path / "some.pem").write_text("nothing\n")
    (tmp_path / "rota.toml").write_text(toml({"redis_url": "rediss://127.0.0.1", **settings}))
    checked = run_rota(tmp_path, "check", "--no-imports")
    assert (checked.returncode, message in checked.stderr) == (78, True), checked.stderr


def test_tls_files_can_be_set_in_the_environment(secure: SecureServer, namespace: str, tmp_path: Path) -> None:
    variables = {f"ROTA_{key.upper()}": value for key, value in secure.files.items()}
    variables |= {"ROTA_REDIS_URL": secure.url, "ROTA_NAMESPACE": namespace}
    checked = run_rota(tmp_path, "check", "--no-imports", **variables)
    assert checked.returncode == 0, checked.stderr
    found = resolve(ClientSettings(), os.environ | variables, tmp_path)
    assert found.redis_tls_key == str(secure.trusted.key)
