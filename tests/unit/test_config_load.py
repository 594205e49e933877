"""Loading the configuration: the order of its sources, the report of all faults at once, suggestions for misspelt keys,
and secrets.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota_supervisor.config.errors import ConfigError, Fault
from rota_supervisor.config.loader import Flags, Loaded, Sources, as_toml, as_values, load_config, origins_by_path
from rota_supervisor.config.model import Config, QueueConfig


def loaded(
    folder: Path,
    text: str,
    environment: dict[str, str] | None = None,
    flags: Flags = Flags(),  # noqa: B008 - frozen
) -> Loaded:
    file = folder / "rota.toml"
    file.write_text(text)
    return load_config(Sources(file, True, environment or {}, flags))


def faults(
    folder: Path,
    text: str,
    environment: dict[str, str] | None = None,
    flags: Flags = Flags(),  # noqa: B008 - frozen
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, environment, flags)
    return [str(fault) for fault in caught.value.faults]


def test_without_a_configuration_file_every_setting_has_its_default(tmp_path: Path) -> None:
    found = load_config(Sources(tmp_path / "rota.toml"))

    assert found.config == Config()


def test_a_configuration_file_named_explicitly_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(Sources(tmp_path / "none.toml", required=True))

    assert "no such file" in str(caught.value)


FAULTS = {
    "workers = -3": 'workers: expected a whole number >= 0 or a range, as in "2..16", got -3',
    'workers = "many"': 'workers: expected a whole number >= 0 or a range, as in "2..16", got "many"',
    "workers = true": 'workers: expected a whole number >= 0 or a range, as in "2..16", got true',
    "workers = 2.5": 'workers: expected a whole number >= 0 or a range, as in "2..16", got 2.5',
    "workers = 501": "workers: expected at most 500 workers on a node, got 501: start a master on another node",
    "workers = 99999999999999999999999": (
        'workers: expected a whole number >= 0 and at most 1000000000000 or a range, as in "2..16", '
        "got 99999999999999999999999"
    ),
    f"workers = {'9' * 400}": (
        f'workers: expected a whole number >= 0 and at most 1000000000000 or a range, as in "2..16", got {"9" * 57}...'
    ),
    'workers = "9..2"': 'workers: expected the smaller number first, as in "2..9", got "9..2"',
    'workers = "2-16"': 'workers: expected a whole number >= 0 or a range, as in "2..16", got "2-16"',
    'workers = "2..501"': "workers: expected at most 500 workers on a node, got 501: start a master on another node",
    "pollers = 3": "pollers: expected a whole number >= 1 and <= 2, got 3",
    "worker = 3": 'worker: unknown key, did you mean "workers"?',
    "zebra = 3": "zebra: unknown key",
    "[limits]\ndrain_secnds = 3": 'limits.drain_secnds: unknown key, did you mean "drain_seconds"?',
    "[limits]\ndrain_seconds = nan": "limits.drain_seconds: expected a number >= 0, got NaN",
    "[limits]\ndrain_seconds = inf": (
        "limits.drain_seconds: expected a number >= 0 and at most 3155760000, got Infinity"
    ),
    "[limits]\ndrain_seconds = -inf": "limits.drain_seconds: expected a number >= 0, got -Infinity",
    "[limits]\ndrain_seconds = 1e400": (
        "limits.drain_seconds: expected a number >= 0 and at most 3155760000, got Infinity"
    ),
    f"[limits]\ndrain_seconds = {'9' * 400}": (
        f"limits.drain_seconds: expected a number >= 0 and at most 3155760000, got {'9' * 57}..."
    ),
    "[limits]\ntime_limit_seconds = 999999999999": (
        "limits.time_limit_seconds: expected a number >= 0.001 and at most 3155760000, got 999999999999"
    ),
    "[limits]\ntime_limit_seconds = 1e-320": ("limits.time_limit_seconds: expected a number >= 0.001, got 1e-320"),
    "[lease]\nrenew_seconds = 5e-324": "lease.renew_seconds: expected a number >= 0.001, got 5e-324",
    "[restarts]\nbackoff_seconds = -0.0": "restarts.backoff_seconds: expected a number >= 0.001, got -0.0",
    "limits = 3": "limits: expected a table, as [limits], got 3",
    'durability = "some"': 'durability: expected one of "none", "wait", "waitaof", got "some"',
    "watch_config = 1": "watch_config: expected true or false, got 1",
    "tiers = []": 'tiers: expected at least one tier, as in [["default"]]',
    "tiers = [[]]": "tiers[0]: the tier has no queue: remove the tier, or add a queue",
    'tiers = ["a"]': 'tiers[0]: expected a list of texts, as in ["default"], got "a"',
    'tiers = [["a"], ["b", "a"]]': 'tiers[1][1]: queue "a" is already in tiers[0][0]: remove one of them',
    'tiers = [["a", "a"]]': 'tiers[0][1]: queue "a" is already in tiers[0][0]: remove one of them',
    'tiers = [["a b"]]': (
        "tiers[0][0]: queue name 'a b' is not valid: a name has 1 to 128 of the characters A-Z a-z 0-9 _ . : -"
    ),
    'tiers = [["{a}"]]': (
        "tiers[0][0]: queue name '{a}' is not valid: a name has 1 to 128 of the characters A-Z a-z 0-9 _ . : -"
    ),
    'tiers = [["mail-delayed"]]': (
        "tiers[0][0]: queue name 'mail-delayed' may not end in '-delayed': "
        "that suffix names the delayed lane of a queue"
    ),
    'namespace = "a{b}"': (
        "namespace: namespace 'a{b}' is not valid: a name has 1 to 128 of the characters A-Z a-z 0-9 _ . : -"
    ),
    'tiers = [["mail"]]\n[queues.mial]\nweight = 2': 'queues.mial: this queue is in no tier, did you mean "mail"?',
    "[queues.other]\nweight = 2": "queues.other: this queue is in no tier: add it to tiers",
    'tiers = [["*"]]': ('tiers[0][0]: "*" would take every queue of the namespace: add a prefix, as in "tenant-*"'),
    'tiers = [["*-tenant"]]': "tiers[0][0]: pattern '*-tenant' is not valid: * may appear only at its end",
    'tiers = [["tenant-**"]]': "tiers[0][0]: pattern 'tenant-**' is not valid: * may appear only at its end",
    'tiers = [["a b*"]]': (
        "tiers[0][0]: pattern 'a b' is not valid: a name has 1 to 128 of the characters A-Z a-z 0-9 _ . : -"
    ),
    'tiers = [["t-*"], ["t-*"]]': 'tiers[1][0]: queue "t-*" is already in tiers[0][0]: remove one of them',
    'tiers = [["t-*"]]\n[queues.t-7]\nweight = 2': (
        'queues.t-7: this queue is in no tier itself: use "t-*", which includes it, or add it to tiers'
    ),
    'tiers = [["t-*"]]\n[queues."s-*"]\nweight = 2': 'queues.s-*: this queue is in no tier, did you mean "t-*"?',
    'tiers = [["t-*"], ["a"]]\n[pools.all]\n[pools.one]\nqueues = ["t-7"]': (
        'pools.one.queues[0]: queue "t-7" is in no tier itself: use "t-*", which includes it, or add it to tiers'
    ),
    'tiers = [["t-*"], ["a"]]\n[pools.one]\nqueues = ["a"]': (
        'pools: no pool takes queue "t-*": add it to the queues of a pool, or use "*" for every queue'
    ),
    'tiers = [["t-*"]]\n[queues."t-*"]\nrate = "often"': (
        'queues.t-*.rate: expected a rate such as "100/m" (a whole number > 0, then /s, /m or /h), got "often"'
    ),
    '[queues.default]\nweight = "high"': ('queues.default.weight: expected a number >= 0.001 and <= 10000, got "high"'),
    "[queues.default]\nweight = 0": "queues.default.weight: expected a number >= 0.001 and <= 10000, got 0",
    "[queues.default]\nweight = -0.0": "queues.default.weight: expected a number >= 0.001 and <= 10000, got -0.0",
    "[queues.default]\nweight = 1e-320": ("queues.default.weight: expected a number >= 0.001 and <= 10000, got 1e-320"),
    "[queues.default]\nweight = 1e5": "queues.default.weight: expected a number >= 0.001 and <= 10000, got 100000.0",
    "[queues.default]\nlag_target = 1": "queues.default.lag_target: expected a number > 0 and < 1, got 1",
    '[queues.default]\nrate = "10"': (
        'queues.default.rate: expected a rate such as "100/m" (a whole number > 0, then /s, /m or /h), got "10"'
    ),
    '[queues.default]\nrate = "0/s"': (
        'queues.default.rate: expected a rate such as "100/m" (a whole number > 0, then /s, /m or /h), got "0/s"'
    ),
    '[queues.default]\nrate = "1e400/s"': (
        'queues.default.rate: expected a rate such as "100/m" (a whole number > 0, then /s, /m or /h), got "1e400/s"'
    ),
    "workers = 2\n[pools.mail]": (
        "workers: set either workers or [pools]: with pools, each pool sets its own number of workers"
    ),
    '[pools.mail]\nqueues = ["defualt"]\n[pools.rest]': (
        'pools.mail.queues[0]: queue "defualt" is in no tier, did you mean "default"?'
    ),
    '[pools.mail]\nqueues = ["default", "default"]': 'pools.mail.queues[1]: queue "default" is named twice',
    "[pools.mail]\nqueues = []\n[pools.rest]": (
        'pools.mail.queues: expected at least one queue, or "*" for every queue'
    ),
    'tiers = [["a", "b"]]\n[pools.mail]\nqueues = ["a"]': (
        'pools: no pool takes queue "b": add it to the queues of a pool, or use "*" for every queue'
    ),
    "[pools.mail]\nworkers = -1": 'pools.mail.workers: expected a whole number >= 0 or a range, as in "2..16", got -1',
    "[pools.mail]\nworkers = 300\n[pools.rest]\nworkers = 300": (
        "pools: expected at most 500 workers on a node, got 600: start a master on another node"
    ),
    '[pools."a b"]': (
        "pools.a b: pool name 'a b' is not valid: a name has 1 to 128 of the characters A-Z a-z 0-9 _ . : -"
    ),
    "[lease]\nseconds = 5": "lease.renew_seconds: expected less than lease.seconds (5), ideally a quarter of it, got 5",
    "[restarts]\nbackoff_seconds = 60": (
        "restarts.backoff_max_seconds: expected at least restarts.backoff_seconds (60), got 30"
    ),
    '[http]\nlisten = "9477"': (
        'http.listen: expected HOST:PORT with a port from 0 to 65535, as in "127.0.0.1:9477", or "" to turn it off, '
        'got "9477"'
    ),
    '[http]\nlisten = "localhost:99999"': (
        'http.listen: expected HOST:PORT with a port from 0 to 65535, as in "127.0.0.1:9477", or "" to turn it off, '
        'got "localhost:99999"'
    ),
    'imports = "shop.tasks"': 'imports: expected a list of texts, as in ["your.tasks"], got "shop.tasks"',
    'imports = ["shop/tasks.py"]': (
        'imports[0]: expected a module such as "shop.tasks", got "shop/tasks.py", did you mean "shop.tasks"?'
    ),
    "[tasks.a]\nretries = -1": "tasks.a.retries: expected a whole number >= 0, got -1",
    "[tasks.a]\ncrash_limit = 1001": "tasks.a.crash_limit: expected a whole number >= 0 and <= 1000, got 1001",
    "[tasks.a]\nsoft_time_limit_seconds = 9\ntime_limit_seconds = 8": (
        "tasks.a.soft_time_limit_seconds: expected less than time_limit_seconds (8), got 9"
    ),
    'redis_url = "http://localhost"': (
        "redis_url: 'http://***' is not a Redis URL: a Redis URL begins with redis://, rediss:// or unix://, with "
        "redis+sentinel:// to query sentinels for the primary, or with redis+cluster:// for a Redis Cluster"
    ),
    'redis_url = "redis://a"\nredis_url_file = "b"': "redis_url_file: set either redis_url or redis_url_file, not both",
    f'[control]\nsocket = "/{"x" * 120}"': (
        "control.socket: expected a path of at most 107 bytes, the limit for sockets, got 121"
    ),
    '[control]\npid_file = "/run/a\\u0000b"': "control.pid_file: a path cannot contain a NUL character",
    '[tasks."a b"]\nretries = 1': (
        "tasks.a b: task name 'a b' is not valid: a name has 1 to 128 of the characters A-Z a-z 0-9 _ . : -"
    ),
    "workers = 2026-01-02": 'workers: expected a whole number >= 0 or a range, as in "2..16", got 2026-01-02',
}


@pytest.mark.parametrize("text", FAULTS)
def test_each_configuration_error_is_reported_once_with_its_key_and_value(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, text) == [FAULTS[text]]


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    text = 'workers = -1\nworkerz = 1\nnamespace = "a b"\n[queues.x]\nrate = "fast"\n[limits]\ndrain_seconds = "long"'

    found = faults(tmp_path, text)

    assert [fault.partition(":")[0] for fault in found] == [
        "workers",
        "workerz",
        "limits.drain_seconds",
        "namespace",
        "queues.x",
        "queues.x.rate",
    ]


@pytest.mark.parametrize(
    "text",
    ["workers = ", "[queues.a]\n[queues.a]", "workers = 1\nworkers = 2", "\x00", "a.b.c = 1\na.b = 2"],
)
def test_a_configuration_file_that_is_not_toml_is_refused(tmp_path: Path, text: str) -> None:
    [fault] = faults(tmp_path, text)

    assert "rota.toml: is not valid TOML: " in fault


@pytest.mark.parametrize(
    "text",
    [
        f"x = {'[' * 100_000}{']' * 100_000}",
        f"x = {'[' * 400}{']' * 400}",
        f"{'x.' * 5_000}x = 1",
        f"[{'x.' * 5_000}x]",
        f"x = {'{x = ' * 400}1{'}' * 400}",
    ],
)
def test_a_configuration_file_that_is_nested_too_deeply_is_refused(tmp_path: Path, text: str) -> None:
    [fault] = faults(tmp_path, text)

    assert fault.endswith("rota.toml: has tables and lists nested more than 8 levels deep: no setting needs that")


@pytest.mark.parametrize("levels", [9, 500, 900, 990, 100_000])
@pytest.mark.parametrize(
    ("variable", "left", "right"), [("TIERS", "[", "]"), ("QUEUES", '{"a":', "1}"), ("DEAD", "[", "]")]
)
def test_an_environment_variable_that_is_nested_too_deeply_is_refused(
    tmp_path: Path, variable: str, left: str, right: str, levels: int
) -> None:
    middle = "1" if left == '{"a":' else ""
    text = f"{left * levels}{middle}{right.replace('1', '') * levels}"
    [fault] = faults(tmp_path, "", {f"ROTA_{variable}": text})

    assert fault.startswith(f"ROTA_{variable}: expected a ")
    assert " as JSON" in fault
    assert len(fault) < 200


def test_a_configuration_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rota.toml"
    file.write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_config(Sources(file, required=True))


# The environment


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    text = "workers = 2\npollers = 2"

    assert loaded(tmp_path, text).config.workers == 2
    assert loaded(tmp_path, text, {"ROTA_WORKERS": "3"}).config.workers == 3
    assert loaded(tmp_path, text, {"ROTA_WORKERS": "3"}, Flags(workers=4)).config.workers == 4
    assert loaded(tmp_path, text, {"ROTA_WORKERS": "3"}).config.pollers == 2


def test_the_origin_of_each_configured_setting_is_recorded(tmp_path: Path) -> None:
    found = loaded(tmp_path, "workers = 2\npollers = 2", {"ROTA_WORKERS": "3"}, Flags(imports=("shop",)))

    assert found.origins == {
        "workers": "environment ROTA_WORKERS",
        "pollers": f"file {tmp_path / 'rota.toml'}",
        "imports": "command line",
    }


def test_each_shown_setting_has_its_origin(tmp_path: Path) -> None:
    origins = origins_by_path(loaded(tmp_path, '[pools."mail.eu"]\nqueues = ["default"]', {"ROTA_POLLERS": "2"}))

    assert origins["pollers"] == "environment ROTA_POLLERS"
    assert origins["pools.mail.eu.queues"] == f"file {tmp_path / 'rota.toml'}"
    assert origins["limits.drain_seconds"] == "default"


def test_environment_variables_set_nested_keys_with_double_underscores(tmp_path: Path) -> None:
    text = 'tiers = [["sold-email", "Bulk.Mail"]]\n[pools.mail-out]\nworkers = 1'
    environment = {
        "ROTA_QUEUES__SOLD_EMAIL__WEIGHT": "3",
        "ROTA_QUEUES__BULK_MAIL__CAP": "7",
        "ROTA_POOLS__MAIL_OUT__WORKERS": "4",
        "ROTA_LIMITS__DRAIN_SECONDS": "5",
        "ROTA_EVENTS__ENABLED": "yes",
        "ROTA_LOG__FORMAT": "json",
        "ROTA_IMPORTS": '["a", "b.c"]',
        "ROTA_HTTP__LISTEN": "",
    }

    config = loaded(tmp_path, text, environment).config

    assert config.queues["sold-email"].weight == 3
    assert config.queues["Bulk.Mail"].cap == 7
    assert config.pools["mail-out"].workers == 4
    assert config.limits.drain_seconds == 5
    assert config.events.enabled
    assert config.log.format == "json"
    assert config.imports == ("a", "b.c")
    assert config.http.listen == ""


def test_an_error_in_a_table_created_by_a_variable_names_the_variable(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, "", {"ROTA_QUEUES__MAIL__WEIGHT": "3"})
    assert fault.endswith("add it to tiers (environment ROTA_QUEUES__MAIL__WEIGHT)")
    [fault] = faults(tmp_path, "[queues.mail]\ncap = 1", {"ROTA_QUEUES__MAIL__WEIGHT": "3"})
    assert fault.endswith("add it to tiers")


def test_environment_variables_can_configure_queues_named_in_rota_tiers(tmp_path: Path) -> None:
    environment = {"ROTA_TIERS": '[["sold-email"]]', "ROTA_QUEUES__SOLD_EMAIL__WEIGHT": "3"}

    assert loaded(tmp_path, "", environment).config.queues["sold-email"].weight == 3


def test_an_environment_variable_can_define_a_pool(tmp_path: Path) -> None:
    config = loaded(tmp_path, "", {"ROTA_POOLS__MAIL__WORKERS": "4"}).config

    assert config.pools["mail"].workers == 4


def test_an_empty_environment_variable_does_not_set_a_number(tmp_path: Path) -> None:
    assert loaded(tmp_path, "workers = 2", {"ROTA_WORKERS": ""}).config.workers == 2


@pytest.mark.parametrize(
    ("variable", "text", "fault"),
    [
        ("ROTA_WORKERS", "many", 'ROTA_WORKERS: expected a whole number >= 0 or a range, as in "2..16", got "many"'),
        (
            "ROTA_WORKERS",
            "-1",
            'workers: expected a whole number >= 0 or a range, as in "2..16", got -1 (environment ROTA_WORKERS)',
        ),
        (
            "ROTA_TIERS",
            "a,b",
            'ROTA_TIERS: expected a list of lists of texts as JSON, as in [["high"], ["default"]], got',
        ),
        (
            "ROTA_IMPORTS",
            "shop.tasks",
            'ROTA_IMPORTS: expected a list of texts as JSON, as in ["your.tasks"], got "shop',
        ),
        ("ROTA_EVENTS__ENABLED", "perhaps", 'ROTA_EVENTS__ENABLED: expected true or false, got "perhaps"'),
        ("ROTA_LOG__LEVEL", "loud", 'log.level: expected one of "debug", "error", "info", "warning", got "loud"'),
    ],
)
def test_an_error_in_the_environment_names_the_variable(tmp_path: Path, variable: str, text: str, fault: str) -> None:
    [found] = faults(tmp_path, "", {variable: text})

    assert found.startswith(fault)
    assert variable in found


def test_an_unknown_variable_is_a_warning(tmp_path: Path) -> None:
    given = {"ROTA_SERVICE_HOST": "10.0.0.1", "ROTA_WORKER": "3", "ROTA_OWNER": "x", "ROTA_LIMITS_DRAIN_SECONDS": "5"}
    of_limits, of_service, of_worker = loaded(tmp_path, "", given).warnings

    said = "in the environment is not a setting of Rota and is ignored"
    assert of_limits == f'ROTA_LIMITS_DRAIN_SECONDS {said}, did you mean "ROTA_LIMITS__DRAIN_SECONDS"?'
    assert of_service == f"ROTA_SERVICE_HOST {said}"
    assert of_worker == f'ROTA_WORKER {said}, did you mean "ROTA_WORKERS"?'


def test_a_condition_that_closes_a_queue_for_long_causes_a_warning(
    tmp_path: Path,
) -> None:
    text = """
        [conditions]
        office = { hours = "Mon-Fri 08:00-18:00 UTC" }
        nobodys = { hours = "Mon 08:00-09:00 UTC" }
        [queues.default]
        condition = "office"
    """

    [found] = loaded(tmp_path, text).warnings
    assert found.startswith("conditions.office.hours: closed for up to 62 hours")


# The server's address


def test_the_redis_url_can_come_from_a_separate_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("redis://:pw@db.example/1\n")

    found = loaded(tmp_path, 'redis_url_file = "secret"')

    assert found.config.redis_url == "redis://:pw@db.example/1"
    assert found.origins["redis_url"] == f"contents of {tmp_path / 'secret'}"


def test_the_redis_url_comes_from_the_source_with_the_highest_precedence(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("redis://from-file")
    text = 'redis_url = "redis://from-toml"'
    by_file = {"ROTA_REDIS_URL_FILE": str(tmp_path / "secret"), "REDIS_URL": "redis://from-platform"}

    assert loaded(tmp_path, text, by_file).config.redis_url == "redis://from-file"
    assert loaded(tmp_path, text, {"REDIS_URL": "redis://from-platform"}).config.redis_url == "redis://from-toml"
    assert loaded(tmp_path, "", {"REDIS_URL": "redis://from-platform"}).config.redis_url == "redis://from-platform"
    found = loaded(tmp_path, 'redis_url_file = "secret"', {"ROTA_REDIS_URL": "redis://from-variable"})
    assert found.config.redis_url == "redis://from-variable"


def test_a_secret_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, 'redis_url_file = "none"')

    assert fault == f"redis_url_file: {tmp_path / 'none'} cannot be read: No such file or directory"


def test_an_error_about_a_secret_file_without_a_url_does_not_quote_the_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n")

    [fault] = faults(tmp_path, 'redis_url_file = "secret"')

    assert fault == f"redis_url_file: {tmp_path / 'secret'} contains no Redis URL"


@pytest.mark.parametrize(
    "text",
    [
        'redis_url = "redis://:hunter2@localhost/x"',
        'redis_url = "redis//:hunter2@localhost"',
        'redis_url = "redis://:p/hunter2@localhost"',
        'redis_url = "redis://:p#hunter2@localhost:port"',
        'redis_url = "redis://u:hunter2@[::1"',
        'redis_url = ["redis://:hunter2@localhost"]',
        "redis_url = { password = 'hunter2' }",
    ],
)
def test_no_configuration_error_shows_the_password(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in " ".join(faults(tmp_path, text))


def test_no_printed_configuration_shows_the_password(tmp_path: Path) -> None:
    found = loaded(tmp_path, 'redis_url = "redis://:hunter2@localhost:1/2"')

    assert as_values(found.config)["redis_url"] == "redis://:***@localhost:1/2"
    assert "hunter2" not in as_toml(found, origins=True)


# Flags


def test_the_command_line_overrides_the_pid_file_of_the_configuration(tmp_path: Path) -> None:
    found = loaded(tmp_path, '[control]\npid_file = "/run/file.pid"', flags=Flags(pid_file="/run/flag.pid"))

    assert found.config.control.pid_file == "/run/flag.pid"
    assert found.origins["control.pid_file"] == "command line"


def test_the_option_w_refuses_an_unknown_pool_with_a_suggestion(tmp_path: Path) -> None:
    text = "[pools.mail]\nworkers = 1"

    assert loaded(tmp_path, text, flags=Flags(pool_workers=(("mail", 7),))).config.pools["mail"].workers == 7
    assert faults(tmp_path, text, flags=Flags(pool_workers=(("mial", 7),))) == [
        '-w mial: there is no such pool, did you mean "mail"?',
    ]


def test_without_pools_the_option_w_sets_the_number_of_default_workers(tmp_path: Path) -> None:
    assert loaded(tmp_path, "", flags=Flags(pool_workers=(("default", 7),))).config.workers == 7


def test_the_option_pool_selects_the_pools_of_the_node(tmp_path: Path) -> None:
    text = 'tiers = [["a", "b"]]\n[pools.a]\nqueues = ["a"]\n[pools.b]\nqueues = ["b"]'

    assert list(loaded(tmp_path, text, flags=Flags(pools=("b",))).config.pools) == ["b"]


def test_the_option_q_replaces_the_tiers_and_drops_all_other_queues(tmp_path: Path) -> None:
    text = """
        tiers = [["a"], ["b", "c"]]
        [queues.a]
        weight = 2
        [queues.c]
        weight = 3
        [pools.first]
        queues = ["a"]
        [pools.both]
        queues = ["a", "b", "c"]
        [pools.rest]
        queues = ["*"]
    """

    config = loaded(tmp_path, text, flags=Flags(tiers=(("c",), ("b",)))).config

    assert config.tiers == (("c",), ("b",))
    assert list(config.queues) == ["c"]
    assert {name: pool.queues for name, pool in config.pools.items()} == {"both": ("b", "c"), "rest": ("*",)}


# Arbitrary input

KEYS = st.sampled_from([*Config.__struct_fields__, "weight", "workers", "queues", "rate", "a-b", ""])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["10/s", "*", "redis://x:y@z", "default"]),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


def test_an_invalid_redis_url_is_reported_even_with_a_credentials_provider() -> None:
    with pytest.raises(ConfigError, match="redis_url"):
        load_config(Sources(environment={"ROTA_REDIS_URL": "", "ROTA_REDIS_CREDENTIALS": "shop:login"}))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.dictionaries(KEYS, VALUES, max_size=4), variables=st.dictionaries(KEYS, st.text(max_size=9), max_size=2))
def test_any_configuration_file_is_either_loaded_or_refused_with_its_faults(
    monkeypatch: pytest.MonkeyPatch, raw: dict[str, Any], variables: dict[str, str]
) -> None:
    monkeypatch.setattr(tomllib, "loads", lambda _: raw)
    environment = {f"ROTA_{name.upper().replace('-', '_')}": text for name, text in variables.items()}
    sources = Sources(Path(__file__), True, environment)

    assert _toml_or_faults(sources)


def _toml_or_faults(sources: Sources) -> str | tuple[Fault, ...]:
    try:
        return as_toml(load_config(sources), origins=True)
    except ConfigError as error:
        return error.faults


def test_invalid_queues_of_a_pool_are_reported_despite_the_option_q(tmp_path: Path) -> None:
    found = faults(tmp_path, 'pools.a.queues = ["c", ["d"]]', flags=Flags(tiers=(("b",),)))

    assert "pools.a.queues[1]: expected text, got a list" in found


def test_an_environment_variable_omits_the_wildcard_of_a_pattern(tmp_path: Path) -> None:
    text = 'tiers = [["tenant-*", "default"]]\n[queues."tenant-*"]\nweight = 2'
    found = loaded(tmp_path, text, {"ROTA_QUEUES__TENANT__CAP": "3"})
    assert found.config.queues == {"tenant-*": QueueConfig(weight=2, cap=3)}
    assert not found.warnings


def test_queues_on_the_command_line_may_be_patterns(tmp_path: Path) -> None:
    text = '[queues."tenant-*"]\nweight = 2\n[queues.default]\nweight = 3'
    found = loaded(tmp_path, text, flags=Flags(tiers=(("tenant-*",),)))
    assert found.config.tiers == (("tenant-*",),)
    assert list(found.config.queues) == ["tenant-*"]


def test_a_printed_configuration_with_a_pattern_can_be_read_again(tmp_path: Path) -> None:
    found = loaded(tmp_path, 'tiers = [["tenant-*"]]\n[queues."tenant-*"]\ncap = 4')
    assert loaded(tmp_path, as_toml(found, origins=True)).config == found.config


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("workers = 1\nimports = []\nworkers = 2", "workers is set on line 1 and again on line 3: keep one of them"),
        ("[pools.a]\nworkers = 1\n[pools.b]\nworkers = 1\n\nworkers = 2\n", "pools.b.workers is set on line 4 and"),
        (
            "[limits]\n[http]\nlisten = ''\n[limits]  # again",
            "[limits] is set on line 1 and again on line 4: keep one of them",
        ),
        ('tiers = [\n  ["a"],\n]\ntiers = [\n["b"],\n["c"],\n]\n', "tiers is set on line 1 and again on line 4"),
        ("[queues.a]\nrate = 10", 'queues.a.rate: expected text, as in "10/s", got 10'),
        ("namespace = shop", 'column 13): put text into quotes, as in namespace = "shop"'),
        ("namespace = 'shop", "a quote is opened but not closed"),
        ('namespace = "shop\n', "a quote is opened but not closed"),
        ('namespace = "shop', "a quote is opened but not closed"),
        ("workers = ", "(at end of document): a value is missing"),
        ("workers =  # none", "column 12): a value is missing"),
        ("workers: 4", "column 8): each line must be KEY = VALUE, [TABLE] or # COMMENT"),
        ("// workers", "column 1): each line must be KEY = VALUE, [TABLE] or # COMMENT"),
        ("[limits\nmax_tasks = 3", "close the bracket; put a name with special characters into quotes"),
        ("[queues.tenant-*]\r\ncap = 3", 'into quotes, as in [queues."tenant-*"]'),
        ("watch_config = True", "write true and false in lower case"),
        ("# a comment\r\nworkers = null", "column 11): TOML has no value for this: leave the key out"),
        ("[queues.a]\nweight = 50%", "only a comment may follow a value on the same line"),
        ('tiers = [["a"]', "a [ is opened but not closed"),
        (
            "[limits]\nworkers = 3",
            "limits.workers: unknown key: this key belongs to no table: move it above the first [table]",
        ),
        ("[queues]\nmail = 3", "queues.mail: expected a table, as [queues.mail], got 3"),
        ('imports = ["shop:app"]', "got ***: name only the module, which is the part before the colon"),
        ('redis_url = ""', "redis_url: '' is not a Redis URL: a Redis URL begins with"),
        (
            'redis_tls_cert = "rota.toml"',
            (
                "redis_tls_cert: redis_url does not use TLS, so redis_tls_cert must not be "
                "set: begin redis_url with rediss://"
            ),
        ),
        ("redis_url = 5", 'redis_url: expected text, as in "redis://127.0.0.1:6379/0", got a number'),
        ("[tasks.a]\ntimeout = 5", "tasks.a.timeout: unknown key: use time_limit_seconds"),
        ("[queues.a]\npriority = 5", "priority: unknown key: the position of a queue in `tiers` is its priority"),
        ("[queues.default]\nweight = 2e6", "queues.default.weight: expected a number >= 0.001 and <= 10000, got"),
        ("[conditions.c]", 'conditions.c: set hours, as in "Mon-Fri 08:00-18:00 Europe/Zurich", or lua'),
        ('[conditions.c]\nhours = "x"\nlua = "true"', "conditions.c: set either hours or lua, not both"),
        (
            'redis_url = "redis://host:99999/0"',
            "the port must be a number from 1 to 65535, and the database a number from 0",
        ),
        (
            'redis_url = "redis://host/-1"',
            "the port must be a number from 1 to 65535, and the database a number from 0",
        ),
        ('redis_url = "unix://"', "redis_url: 'unix://' names no socket: add the path"),
        (
            'redis_tls_ca = "rota.toml"',
            "redis_tls_ca: redis_url does not use TLS, so redis_tls_ca must not be set: begin redis_url with rediss://",
        ),
        ('[pools.a]\nqueues = ["zzz"]', 'pools.a.queues[0]: queue "zzz" is in no tier: add it to tiers'),
    ],
)
def test_a_mistake_in_rota_toml_is_reported_with_its_correction(tmp_path: Path, content: str, what: str) -> None:
    (tmp_path / "rota.toml").write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_config(Sources(tmp_path / "rota.toml"))
    assert what in str(caught.value.faults[0])
