"""The output of `rota top` when there is no fleet."""

from pathlib import Path

import pytest

from support.fleet_process import rota


@pytest.mark.parametrize(
    ("arguments", "settings", "code", "told"),
    [
        (
            ["--once"],
            {"http": {"listen": ""}},
            78,
            "HTTP server, which is turned off: set [http] listen, or name another node with --url",
        ),
        (["--once"], {"http": {"listen": "127.0.0.1:1"}}, 69, "no server responds at http://127.0.0.1:1/status.json"),
        ([], {}, 2, "needs a terminal: without a terminal, use --once or --json"),
        (["--once", "--token-file", "rota.toml"], {}, 2, "rota.toml cannot be used: expected one word of ASCII"),
        (["--once", "--url", "ftp://x"], {}, 2, "expected a URL such as http://host:9477"),
    ],
)
def test_top_without_a_fleet_explains_the_problem(
    tmp_path: Path, arguments: list[str], settings: dict[str, dict[str, str]], code: int, told: str
) -> None:
    listen = settings.get("http", {}).get("listen", "127.0.0.1:1")
    (tmp_path / "rota.toml").write_text(f'[http]\nlisten = "{listen}"\n')
    done = rota(tmp_path, "top", *arguments)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
