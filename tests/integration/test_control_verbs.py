"""The commands that control a master: the request that each command sends, its output, and its exit code."""

import json
from collections.abc import Callable

import pytest

from rota_supervisor.cli.app import run_app
from rota_supervisor.control.port import ScaleOrder
from rota_supervisor.control.socket_server import ControlSocket
from support.fake_master import FakeMaster

Rota = Callable[..., int]


@pytest.fixture
def rota(control_socket: ControlSocket) -> Rota:
    """Return a function that runs a command for the fleet with this control socket."""
    file = control_socket.path.parent / "rota.toml"
    file.write_text(f'[control]\nsocket = "{control_socket.path}"\n')
    return lambda *words: run_app([*words, "-c", str(file)])


@pytest.mark.parametrize(
    ("words", "order"),
    [
        (["8"], ScaleOrder(None, 8)),
        (["+2"], ScaleOrder(None, 2, is_relative=True)),
        (["-2"], ScaleOrder(None, -2, is_relative=True)),
        (["mail", "-12"], ScaleOrder("mail", -12, is_relative=True)),
        (["8", "0"], ScaleOrder("8", 0)),  # "8" may be the name of a pool
        (["--json", "-2"], ScaleOrder(None, -2, is_relative=True)),
    ],
)
def test_scale_takes_a_number_or_a_difference(
    rota: Rota, master: FakeMaster, words: list[str], order: ScaleOrder
) -> None:
    master.answers["scale"] = {"pool": "mail", "from": 4, "to": 6, "origin": "operator"}
    assert rota("scale", *words) == 0
    assert master.asked == [order]


@pytest.mark.parametrize(
    "words", [[], ["mail"], ["2.5"], ["mail", "many"], ["a", "b", "3"], ["--fast"], ["-x2"], ["٣"], ["9" * 5000]]
)
def test_invalid_scale_arguments_do_not_reach_the_master(
    rota: Rota, master: FakeMaster, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert rota("scale", *words) == 2
    assert "rota: error: " in capsys.readouterr().err
    assert master.asked == []


def test_the_scale_command_prints_the_old_and_the_new_number(
    rota: Rota, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    master.answers["scale"] = {"pool": "mail", "from": 4, "to": 1, "origin": "operator"}
    assert rota("scale", "1") == 0
    assert capsys.readouterr().err == "rota: pool mail: from 4 to 1 worker\n"
    assert rota("scale", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out) == master.answers["scale"]


@pytest.mark.parametrize("verb", ["reload", "restart"])
def test_a_reload_exits_with_78_and_the_faults_if_the_code_does_not_load(
    rota: Rota, master: FakeMaster, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    master.answers[verb] = {"result": "failure", "faults": ["imports: shop: no such module"]}
    assert rota(verb, "--json") == 78
    said = capsys.readouterr()
    assert json.loads(said.out) == master.answers[verb]
    assert json.loads(said.err)["errors"][0] == "imports: shop: no such module"
    assert rota(verb) == 78
    assert "rota: error: imports: shop: no such module\n" in capsys.readouterr().err
    master.answers[verb] = {"result": "success", "changes": ["workers"]}
    assert rota(verb) == 0
    assert capsys.readouterr().err.endswith("ed: workers\n")


def test_a_dry_run_prints_the_plan_and_exits_like_a_real_reload(
    rota: Rota, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    good: dict[str, object] = {
        "result": "success",
        "faults": [],
        "warnings": ["mind this"],
        "changes": [],
        "plan": ["one", "two"],
    }
    master.answers["preview"] = good
    assert rota("reload", "--dry-run") == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("one\ntwo\n", "rota: warning: mind this\n")
    master.answers["preview"] = {**good, "result": "failure", "faults": ["workers: too many"]}
    assert rota("reload", "--dry-run", "--json") == 78
    assert json.loads(capsys.readouterr().out)["plan"] == ["one", "two"]
    assert master.asked == ["preview", "preview"]


@pytest.mark.parametrize("verb", ["quiet", "resume"])
def test_the_quiet_and_resume_commands_report_whether_anything_changed(
    rota: Rota, master: FakeMaster, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for changed in (True, False):
        master.answers[verb] = {"quiet": verb == "quiet", "changed": changed}
        assert rota(verb) == 0
        said.append(capsys.readouterr().err)
    assert said[0] != said[1]
    assert rota(verb, "--json") == 0
    assert json.loads(capsys.readouterr().out) == master.answers[verb]
    assert master.asked == [verb] * 3


@pytest.mark.parametrize(
    "words", [["scale", "8"], ["reload"], ["reload", "--dry-run"], ["restart"], ["quiet"], ["resume"]]
)
def test_a_command_that_the_master_refuses_exits_with_1(
    rota: Rota, master: FakeMaster, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    master.refusal = "the fleet is draining"
    assert rota(*words) == 1
    assert capsys.readouterr().err == "rota: error: the master refused: the fleet is draining\n"


@pytest.mark.parametrize(
    "words", [["status"], ["scale", "8"], ["reload"], ["restart"], ["quiet"], ["resume"], ["stop"]]
)
def test_each_command_to_a_master_exits_with_69_if_none_is_running(
    rota: Rota, words: list[str], control_socket: ControlSocket, capsys: pytest.CaptureFixture[str]
) -> None:
    control_socket.listening.close()
    assert rota(*words) == 69
    assert "no master is listening at" in capsys.readouterr().err
