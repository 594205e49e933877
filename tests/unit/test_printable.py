"""Text from outside is escaped wherever people may see the text."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import rota.telemetry.log as rota_log
from rota.child.child_settings import Format, LogSettings
from rota.display_text import printable, printable_json, printable_lines
from rota.telemetry import log_events
from rota.telemetry import metrics as m
from rota_supervisor.cli.command import CliState
from rota_supervisor.cli.demo_verb import Screen
from rota_supervisor.cli.output import print_errors, print_message, print_warning, put, put_json, put_table
from rota_supervisor.demo.proof import Check
from rota_supervisor.exits import print_crash
from rota_supervisor.exporter.exposition import Origins, ScrapeOptions, exposition
from rota_supervisor.exporter.series import Samples
from rota_supervisor.master.effects.notify_socket import NotifySocket
from support.hostile import HOSTILE, UNFIT, VALID, unfit_in


class Strange:
    """A value that JSON cannot represent, with a repr of its own."""

    def __repr__(self) -> str:
        return HOSTILE


def failure() -> BaseException:
    """Return an exception with outside text in its message, note, cause, class and file name."""
    name = VALID.replace("\0", "")
    names = {"kind": type(name, (ValueError,), {}), "text": HOSTILE}
    try:
        exec(compile("raise kind(text) from OSError(text)", name, "exec"), names)
    except ValueError as error:
        error.add_note(HOSTILE)
        return error
    raise AssertionError


# The function


@given(st.text(st.characters()) | st.text(UNFIT))
def test_escaped_text_is_printable_and_is_not_escaped_twice(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert shown.encode().decode() == shown
    assert printable_lines(text) == "\n".join(map(printable, text.split("\n")))


@given(st.text(st.characters()) | st.text(UNFIT))
def test_escaping_json_for_display_keeps_its_data(text: str) -> None:
    document = printable_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert document.isprintable()
    assert json.loads(document) == json.loads(json.dumps({text: [text]}))


def test_escaping_changes_only_control_characters() -> None:
    text = "bücher 本 \U0001f600 'a' \\ [red] <b>"
    assert printable(text) == text
    assert printable("\x1b[31m\r\n\t\x7f\x9b\u202e\udcff\U000e0041") == (
        r"\u001b[31m\r\n\t\u007f\u009b\u202e\udcff\udb40\udc41"
    )


# The logs


@pytest.mark.parametrize("text_format", ["json", "console", "logfmt"])
@pytest.mark.parametrize("on_terminal", [False, True])
def test_log_fields_contain_no_control_characters(text_format: Format, on_terminal: bool) -> None:
    output = logged(
        text_format,
        lambda log: log.error(
            log_events.TASK_DEAD,
            error=HOSTILE,
            words=[HOSTILE, {HOSTILE: HOSTILE}],
            thing=Strange(),
            path=Path("/x\x1b"),
            count=3,
            exc_info=failure(),
        ),
        on_terminal=on_terminal,
    )
    assert "before" in output
    assert unfit_in(output, colored=on_terminal) == ""


@pytest.mark.parametrize("text_format", ["json", "console", "logfmt"])
def test_events_and_long_lines_contain_no_control_characters(text_format: Format) -> None:
    output = logged(text_format, lambda log: log.warning(HOSTILE, logger=HOSTILE))
    output += logged(text_format, lambda log: log.warning(log_events.TASK_DEAD, error=HOSTILE * 50))
    output += logged(text_format, lambda log: log.warning(log_events.TASK_DEAD, **{f"f{n}": UNFIT for n in range(99)}))
    assert "truncated" in output
    assert unfit_in(output) == ""


def test_escaping_a_json_log_line_keeps_its_data() -> None:
    output = logged("json", lambda log: log.error(log_events.TASK_DEAD, error=HOSTILE, words=[HOSTILE]))
    line = json.loads(output)
    assert (line["error"], line["words"], line["bound"]) == (HOSTILE, [HOSTILE], HOSTILE)


@pytest.mark.parametrize("text_format", ["json", "logfmt"])
def test_an_error_with_newlines_is_one_log_line(text_format: Format) -> None:
    output = logged(text_format, lambda log: log.error("event", error="a\nb\r\nc", exc_info=failure()))
    assert output.count("\n") == 1


def logged(text_format: Format, write: Callable[[rota_log.Logger], None], *, on_terminal: bool = False) -> str:
    """Call `write` with a logger, and return the output on the log's file descriptor."""
    reading, writing = os.openpty() if on_terminal else os.pipe()
    rota_log.configure(LogSettings(format=text_format), fd=writing, bound=HOSTILE)
    write(rota_log.logger())
    rota_log.configure(LogSettings())
    if on_terminal:
        os.write(writing, b"end")
    else:
        os.close(writing)
    output = b""
    while part := os.read(reading, 1 << 16):
        output += part
        if output.endswith(b"end"):
            os.close(writing)
            break
    os.close(reading)
    return output.decode().replace("\r\n", "\n")  # the terminal converts line ends to "\r\n"


# Outputs other than the log


def _notified() -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")  # lets the kernel choose an abstract address
        NotifySocket(f"@{manager.getsockname()[1:].decode()}").send_status(HOSTILE)
        return manager.recv(1 << 16).decode()


def _metrics() -> str:
    samples = Samples()
    samples.put(m.QUEUE_READY, (HOSTILE,), 1)
    text = exposition(samples, HOSTILE, ScrapeOptions(), Origins(lambda *_: None, {}), 0.0).body.decode()
    ready, _ = text_string_to_metric_families(text)
    assert [sample.labels for sample in ready.samples] == [{"fleet": printable(HOSTILE), "queue": printable(HOSTILE)}]
    return text


def _demo() -> None:
    screen = Screen(CliState())
    screen.event(HOSTILE)
    screen.show([Check("name", False, HOSTILE)])


def _raised() -> None:
    error = failure()
    print_crash(type(error), error, error.__traceback__)


PLACES: dict[str, Callable[[], str | None]] = {
    "rota: error:": lambda: print_errors(1, [HOSTILE]),
    "a refusal in JSON": lambda: print_errors(1, [HOSTILE], as_json=True),
    "rota: warning:": lambda: print_warning(HOSTILE),
    "rota:": lambda: print_message(HOSTILE),
    "data of commands": lambda: put(HOSTILE),
    "--json": lambda: put_json({HOSTILE: [HOSTILE]}),
    "tables": lambda: put_table(["A", "B"], [[HOSTILE, 1]]),
    "an exception nobody caught": _raised,
    "sd_notify": _notified,
    "metrics": _metrics,
    "demo": _demo,
}


@pytest.mark.parametrize("place", PLACES)
def test_every_output_escapes_control_characters_in_text_from_users(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written = PLACES[place]()
    output = "".join(capsys.readouterr()) if written is None else written
    assert "before" in output
    assert "after" in output
    assert unfit_in(output) == ""


def test_json_output_is_one_document_with_the_same_data(capsys: pytest.CaptureFixture[str]) -> None:
    put_json({HOSTILE: [HOSTILE]})
    assert json.loads(capsys.readouterr().out) == {HOSTILE: [HOSTILE]}
