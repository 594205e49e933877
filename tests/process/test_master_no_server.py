"""A fleet without a server does not start, and says why."""

from pathlib import Path

from fleet_process import rota
from servers import free_port


def test_without_a_server_it_says_where_it_looked_and_what_to_do(tmp_path: Path, namespace: str) -> None:
    port = free_port()
    (tmp_path / "rota.toml").write_text(
        f'namespace = "{namespace}"\nredis_url = "redis://:secret@127.0.0.1:{port}/0"\n'
    )
    done = rota(tmp_path, "run")
    assert done.returncode == 69
    assert f"redis://:***@127.0.0.1:{port}/0" in done.stderr
    assert "secret" not in done.stderr
