"""The output of faulthandler as one line. The relevant thread and the innermost call come first, and omitted parts are
counted.
"""

from pathlib import Path

import pytest

import rota
from rota_supervisor.master.core.death import of_fatal_error, shortened

OWN = Path(rota.__file__).parent / "worker/application.py"
MAIN = f"""Current thread 0x00007f20 (most recent call first):
  File "/shop/pictures.py", line 31 in scale
  File "/shop/tasks.py", line 7 in resize
  File "{OWN}", line 50 in call
  File "<frozen runpy>", line 88 in _run_code
"""
OTHER = """Thread 0x00007f99 (most recent call first):
  File "/usr/lib/threading.py", line 100 in wait
"""
FATAL = "Fatal Python error: Segmentation fault\n\n"


def test_a_shortened_stack_begins_with_the_innermost_call_of_the_application() -> None:
    assert shortened(MAIN, 1000) == "scale (/shop/pictures.py:31) < resize (/shop/tasks.py:7)"


def test_a_shortened_stack_inside_rota_shows_the_frame_of_rota() -> None:
    idle = f'Current thread 0x01 (most recent call first):\n  File "{OWN}", line 9 in wait\n'
    assert shortened(idle, 1000) == f"wait ({OWN}:9)"


def test_a_shortened_stack_shows_the_main_thread_first() -> None:
    assert shortened(f"{OTHER}\n{MAIN}", 1000).startswith("scale (")
    assert shortened(f"{OTHER}\n{MAIN}", 1000).endswith("(other threads: 1)")


def test_a_shortened_stack_of_a_fatal_error_shows_the_failed_thread_first() -> None:
    failed_elsewhere = FATAL + OTHER.replace("Thread", "Current thread") + MAIN.replace("Current thread", "Thread")
    assert shortened(failed_elsewhere, 1000).startswith("wait (/usr/lib/threading.py:100)")


def test_a_shortened_stack_omits_text_before_a_fatal_error() -> None:
    assert of_fatal_error(OTHER + FATAL + MAIN) == FATAL + MAIN
    assert of_fatal_error(OTHER) == ""


def test_a_shortened_stack_counts_the_frames_that_it_omits() -> None:
    deep = "Current thread 0x01 (most recent call first):\n" + "".join(
        f'  File "/shop/tasks.py", line {line} in recurse\n' for line in range(100)
    )
    line = shortened(deep, 300)
    assert len(line) <= 300
    assert line.startswith("recurse (/shop/tasks.py:0) < recurse (/shop/tasks.py:1)")
    assert line.endswith(f"... {100 - line.count('recurse')} more")
    assert len(shortened(MAIN, 20)) <= 20


@pytest.mark.parametrize("text", ["", "\n", "rubbish", "  File without a thread", "Current thread 0x01 (most recent"])
def test_a_text_without_a_stack_is_shortened_to_an_empty_text(text: str) -> None:
    assert shortened(text, 100) == ""


def test_a_stack_without_a_thread_header_can_be_shortened() -> None:
    text = "\n".join(
        (
            "Stack (most recent call first):",
            '  File "/app/web.py", line 7 in wait',
            '  File "/app/web.py", line 3 in serve',
        )
    )
    assert shortened(text, 200) == "wait (/app/web.py:7) < serve (/app/web.py:3)"
