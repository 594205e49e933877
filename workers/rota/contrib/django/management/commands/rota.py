"""The command `manage.py rota ...`, which runs `rota` with the project's settings.

`rota` replaces the process and keeps its pid, so neither the master nor a probe keeps Django in memory. Workers set
Django up again when they import `rota.contrib.django.worker`.
"""

import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser

from rota.contrib.django.apps import variables_of_project

WORKER_MODULE: Final = "rota.contrib.django.worker"


class Command(BaseCommand):
    """The command `manage.py rota`. It passes its arguments on to `rota`, except `--settings` and `--pythonpath`."""

    help = (
        "Runs the command `rota` with this project's settings, for example `manage.py rota run` or `manage.py rota "
        "status`."
    )

    def run_from_argv(self, argv: list[str]) -> NoReturn:
        """Replace this process with `rota`. If the system check finds an error, exit with status 78 instead, as `rota`
        would."""
        try:
            self.check(tags=["rota"])
        except CommandError as error:
            self.stderr.write(str(error))
            sys.exit(os.EX_CONFIG)
        arguments = _without_django_options(argv[2:])
        environment = _environment(arguments)
        os.execve(sys.executable, [sys.executable, "-P", "-m", "rota_supervisor", *arguments], environment)  # noqa: S606

    def handle(self, *_: object, **__: object) -> None:
        """Raise CommandError if the command is run by `call_command`, because it would replace the calling program."""
        raise CommandError(
            "this command would replace the calling process: run `manage.py rota ...` or `rota ...` in a shell instead"
        )


def _without_django_options(arguments: Sequence[str]) -> list[str]:
    parser = CommandParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    return parser.parse_known_args(arguments)[1]


def _environment(arguments: Sequence[str]) -> dict[str, str]:
    environment = {**os.environ, **variables_of_project()}
    # sys.path[0] is the folder of manage.py. The fleet always finds modules in the current folder, so add only another
    # folder.
    if sys.path[0] != str(Path.cwd()):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (sys.path[0], environment.get("PYTHONPATH"))))
    if "ROTA_IMPORTS" not in environment and not _names_imports(_config_file(arguments)):
        environment["ROTA_IMPORTS"] = f'["{WORKER_MODULE}"]'
    return environment


def _config_file(arguments: Sequence[str]) -> Path:
    parser = CommandParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-c", "--config", default=os.environ.get("ROTA_CONFIG") or "rota.toml")
    return Path(parser.parse_known_args(arguments)[0].config)


def _names_imports(file: Path) -> bool:
    try:
        return bool(tomllib.loads(file.read_text(encoding="utf-8")).get("imports"))
    except (OSError, ValueError):  # no error is raised here, because `rota` itself reports what is wrong with the file
        return False
