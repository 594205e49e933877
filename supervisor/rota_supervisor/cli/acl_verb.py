"""`rota acl`: the users for Redis's access control lists, printed or created on the server."""

import hashlib
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from rota.display_text import redact
from rota.server.connection import Connection
from rota.server.server_errors import Refused
from rota_supervisor.acl_roles import AclRole, rules_of, rules_on_sentinels
from rota_supervisor.cli import command, output
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import topology_of
from rota_supervisor.exits import ExitCode, Failure

_PLACEHOLDER: Final = ">PASSWORD"
_BYTES_OF_PASSWORD: Final = 32
_MODE: Final = 0o600
_NOT_SAVED: Final = (
    "the server has no ACL file, so it forgets the users when it restarts: set aclfile in its configuration, or add "
    "the printed lines to it, with `user` in place of `ACL SETUSER`"
)


class AclUser(NamedTuple):
    """A Redis user for one role. `rules` are the parts of its definition after `reset on` and the password."""

    role: AclRole
    name: str
    rules: list[str]


@click.command(cls=command.RotaCommand)
@click.argument("roles", type=click.Choice([role.value for role in AclRole]), nargs=-1, metavar="[ROLE]...")
@click.option(
    "--prefix", metavar="TEXT", help="Begin the name of each user with this text [the namespace and a hyphen]."
)
@click.option(
    "--passwords",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="The folder that has one file for each role, for example FOLDER/fleet, with the password of that role.",
)
@click.option("--sentinel", is_flag=True, help="Print the users of sentinels instead of the users of the server.")
@click.option("--apply", is_flag=True, help="Create the users on the server, or replace them.")
@click.option("--yes", is_flag=True, help="Do not prompt.")
def acl(
    *, roles: Sequence[str], prefix: str | None, passwords: Path | None, sentinel: bool, apply: bool, yes: bool
) -> None:
    """Print the Redis users of this namespace: producer, fleet, observer and operator.

    Each user gets exactly the commands and keys that its role needs. With --apply, the users are created on the server;
    passwords that do not exist yet are generated and written to the folder of --passwords.
    """
    command.check_usage(
        "--apply needs --passwords FOLDER, the folder with the passwords" if apply and not passwords else None
    )
    command.check_usage(
        "--apply creates users only on the server: create the users of sentinels by hand"
        if apply and sentinel
        else None
    )
    state = command.current_state()
    config = state.load_to_reach()
    users = users_of(config, [AclRole(role) for role in roles] or [*AclRole], prefix, on_sentinels=sentinel)
    if apply:
        assert passwords is not None
        _apply(state, config, users, passwords, yes=yes)
        return
    hashes = {} if passwords is None else {user.role: _hash_of(_password_in(passwords / user.role)) for user in users}
    lines = [f"ACL SETUSER {user.name} reset on {' '.join(_rules(user, hashes))}" for user in users]
    if state.json:
        output.put_json({"users": [{**user._asdict(), "password_sha256": hashes.get(user.role)} for user in users]})
    else:
        output.put("\n".join(lines))


def users_of(
    config: Config, roles: Iterable[AclRole], prefix: str | None = None, *, on_sentinels: bool = False
) -> list[AclUser]:
    """Return the users for these roles in this configuration. The names of the users begin with the prefix, by default
    the namespace.
    """
    before = f"{config.namespace}-" if prefix is None else prefix
    topology = topology_of(config)
    return [
        AclUser(
            role,
            f"{before}{role}",
            rules_on_sentinels()
            if on_sentinels
            else rules_of(role, config.namespace, config.durability, topology, config.adopt),
        )
        for role in roles
    ]


def _rules(user: AclUser, hashes: dict[AclRole, str]) -> list[str]:
    return [f"#{hashes[user.role]}" if hashes else _PLACEHOLDER, *user.rules]


def _apply(state: command.CliState, config: Config, users: list[AclUser], folder: Path, *, yes: bool) -> None:
    names = ", ".join(user.name for user in users)
    output.confirm(f"create or replace the users {names} on {redact(config.redis_url)}", yes=yes)
    hashes = {user.role: _hash_of(_password_at(folder / user.role)) for user in users}
    with state.redis(config) as (_, _, connection):
        for user in users:
            _set_user(connection, user, hashes)
        is_saved = _save(connection)
    report = {"users": [user.name for user in users], "passwords": str(folder), "saved": is_saved}
    state.report(report, f"created {names}; their passwords are in {folder}")


def _set_user(connection: Connection, user: AclUser, hashes: dict[AclRole, str]) -> None:
    # A selector in parentheses can be split at its spaces, because the server joins these words again.
    words = " ".join(_rules(user, hashes)).split(" ")
    try:
        connection.execute("ACL", "SETUSER", user.name, "reset", "on", *words)
    except Refused as error:
        remedy = "run the command as an administrator, for example with ROTA_REDIS_URL=redis://default:PASSWORD@HOST/0"
        raise Failure(ExitCode.NO, f"the server refused the user {user.name}: {error}: {remedy}") from None


def _save(connection: Connection) -> bool:
    try:
        connection.execute("ACL", "SAVE")
    except Refused:
        output.print_warning(_NOT_SAVED)
        return False
    return True


def _hash_of(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


def _password_at(file: Path) -> str:
    """Return the password in a file. If the file does not exist, generate a password and write it to the file."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    except FileExistsError:
        return _password_in(file)
    except OSError as error:
        raise Failure(ExitCode.TAKEN, f"{file} cannot be written: {error.strerror}") from None
    password = secrets.token_urlsafe(_BYTES_OF_PASSWORD)
    with os.fdopen(descriptor, "w") as out:
        out.write(f"{password}\n")
    return password


def _password_in(file: Path) -> str:
    try:
        password = file.read_text().strip()
    except OSError as error:
        remedy = "write the password into this file, or let --apply generate one"
        raise Failure(ExitCode.CONFIG, f"{file} cannot be read: {error.strerror}: {remedy}") from None
    except UnicodeDecodeError:
        raise Failure(ExitCode.CONFIG, f"{file} is not text: write a password of one line into the file") from None
    if not password or len(password.split()) > 1:
        raise Failure(ExitCode.CONFIG, f"{file} does not contain a password: write a single word into the file")
    return password
