"""Rota's Django application in a single process: when it sends enqueues, and its admin page."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connections, transaction
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

import rota
from rota.client.default_clients import default_client
from rota.contrib.django.apps import variables_of_project
from rota.protocol.outcome import DeadOutcome
from rota.tasks.registry import default_registry
from rota.testing import eager
from support.django_project import set_up_again
from support.protocol import Fleet, one_tier
from support.servers import Server


@pytest.fixture(autouse=True)
def _project(server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(default_registry, "_tasks", {})
    with set_up_again({"redis_url": server.url, "namespace": namespace}):
        yield


DEATH = b'{"reason":"failed","error":"ValueError: bad","attempt":1}'


def send() -> rota.Handle[None]:
    return default_client().enqueue("send", args=[7], queue="mail")


@contextmanager
def rolled_back(database: str = "default") -> Iterator[None]:
    """Run the block in a transaction, and roll it back."""
    with transaction.atomic(using=database):
        yield
        transaction.set_rollback(True, using=database)


@contextmanager
def file_database(path: Path) -> Iterator[None]:
    """Add a database that is stored in a file. A database in memory is not sufficient, because closing a connection to
    it has no effect.
    """
    connections.databases["file"] = {**connections.databases["default"], "NAME": str(path)}
    call_command("migrate", database="file", verbosity=0)
    try:
        yield
    finally:
        connections["file"].close()
        del connections["file"], connections.databases["file"]


class TestCommits:
    def test_a_task_is_sent_at_once_if_no_transaction_is_open(self, fleet: Fleet) -> None:
        assert [send().id] == fleet.lane("mail")

    def test_a_task_is_sent_by_the_outermost_commit(self, fleet: Fleet) -> None:
        with transaction.atomic():
            with transaction.atomic():
                handle = send()
            assert fleet.lane("mail") == []
        assert fleet.lane("mail") == [handle.id]

    def test_a_task_is_never_sent_after_a_rollback(self, fleet: Fleet) -> None:
        with rolled_back():
            send()
        with transaction.atomic():
            pass
        assert fleet.lane("mail") == []

    def test_the_rollback_of_a_savepoint_drops_only_its_enqueues(self, fleet: Fleet) -> None:
        with transaction.atomic():
            kept = send()
            with rolled_back():
                send()
        assert fleet.lane("mail") == [kept.id]

    @pytest.mark.parametrize(("outer", "inner"), [("default", "other"), ("other", "default")])
    def test_in_transactions_of_two_databases_a_task_waits_for_both_commits(
        self, fleet: Fleet, outer: str, inner: str
    ) -> None:
        with transaction.atomic(using=outer):
            with transaction.atomic(using=inner):
                handle = send()
            assert fleet.lane("mail") == []
        assert fleet.lane("mail") == [handle.id]

    @pytest.mark.parametrize(("outer", "inner"), [("default", "other"), ("other", "default")])
    def test_a_rollback_of_either_database_drops_the_task(self, fleet: Fleet, outer: str, inner: str) -> None:
        with transaction.atomic(using=outer), rolled_back(inner):
            send()
        with rolled_back(outer), transaction.atomic(using=inner):
            send()
        assert fleet.lane("mail") == []

    def test_a_blocking_enqueue_in_async_code_works_but_warns(self, fleet: Fleet) -> None:
        async def view() -> str:
            return send().id

        with pytest.warns(rota.BlockingCall):
            task_id = asyncio.run(view())
        assert fleet.lane("mail") == [task_id]

    def test_async_code_can_await_an_enqueue(self, fleet: Fleet) -> None:
        async def view() -> str:
            async with rota.default_async_client() as client:
                return (await client.enqueue("send", args=[7], queue="mail")).id

        assert [asyncio.run(view())] == fleet.lane("mail")

    def test_an_enqueue_is_refused_if_autocommit_is_off(self, fleet: Fleet) -> None:
        transaction.set_autocommit(False)
        try:
            with pytest.raises(transaction.TransactionManagementError, match="manual transaction management"):
                send()
        finally:
            transaction.set_autocommit(True)
        assert fleet.lane("mail") == []

    def test_the_setting_on_commit_can_be_disabled(self, server: Server, namespace: str, fleet: Fleet) -> None:
        given = {"redis_url": server.url, "namespace": namespace, "on_commit": False}
        with set_up_again(given), transaction.atomic():
            assert [send().id] == fleet.lane("mail")


class TestTasksInATransaction:
    """Tests of `eager()` and `drain()` inside a transaction, such as that of Django's TestCase."""

    def test_a_task_run_in_a_transaction_keeps_connection_and_pending_enqueues(
        self, fleet: Fleet, tmp_path: Path
    ) -> None:
        task = rota.task(name="count_users")(lambda: get_user_model().objects.using("file").count())
        with file_database(tmp_path / "file.sqlite3"), transaction.atomic(using="file"):
            send()
            with eager() as ran, CaptureQueriesContext(connections["file"]) as queries:
                task.using(on_commit=None).enqueue()
            assert ([each.outcome for each in ran], len(queries)) == (["done"], 1)
        assert len(fleet.lane("mail")) == 1


@pytest.fixture(name="dead")
def _dead(fleet: Fleet) -> list[str]:
    """Put two dead tasks and one waiting task into the queue q. Returns the ids of the dead ones."""
    fleet.push("first", "second", "waits")
    owner, serving = fleet.register(), one_tier("q")
    for _ in range(2):
        [claim] = fleet.turn(owner, serving).claims
        fleet.turn(owner, serving, (claim, DeadOutcome(DEATH)), limit=0)
    return ["first", "second"]


class TestAdminPage:
    @pytest.fixture
    def browser(self) -> Iterator[Browser]:
        with rolled_back():
            yield self.browser_of(is_staff=True)

    def browser_of(self, *, is_staff: bool) -> Browser:
        browser = Browser()
        browser.force_login(get_user_model().objects.create(username=f"{is_staff}", is_staff=is_staff))
        return browser

    def test_the_admin_page_lists_queues_and_dead_tasks_with_their_reasons(
        self, browser: Browser, dead: list[str]
    ) -> None:
        page = browser.get("/admin/rota/").content.decode()
        assert "<td>q</td><td>1</td>" in page
        assert page.count("ValueError: bad") == len(dead)
        assert "ValueError: bad" in browser.get("/admin/rota/?queue=q").content.decode()
        assert "ValueError: bad" not in browser.get("/admin/rota/?queue=other").content.decode()

    def test_selected_dead_tasks_are_revived_or_purged(self, browser: Browser, dead: list[str], fleet: Fleet) -> None:
        page = browser.post("/admin/rota/dead/", {"revive": "1", "id": dead[0]}, follow=True).content.decode()
        assert "1 task revived" in page
        assert dead[0] in fleet.lane("q")
        assert (
            "1 task purged"
            in browser.post(
                "/admin/rota/dead/", {"purge": "1", "id": [dead[1], "unknown"]}, follow=True
            ).content.decode()
        )
        assert default_client().status(dead[1]).state == "unknown"

    def test_the_admin_page_shows_a_task_by_its_id(self, browser: Browser, dead: list[str]) -> None:
        page = browser.get(f"/admin/rota/task/?id={dead[0]}").content.decode()
        assert "<td>dead</td>" in page
        assert "<td>unknown</td>" in browser.get("/admin/rota/task/?id=x").content.decode()

    def test_the_admin_page_escapes_the_text_of_tasks(self, browser: Browser) -> None:
        default_client().enqueue("send", args=["<script>"], queue="q", id="1", on_commit=None)
        page = browser.get("/admin/rota/task/?id=1").content.decode()
        assert "&lt;script&gt;" in page
        assert "<script>" not in page.partition('id="content-main"')[2].partition("<footer")[0]

    def test_a_user_who_is_not_staff_is_redirected_to_the_login(self) -> None:
        with rolled_back():
            answers = [Browser().get("/admin/rota/"), self.browser_of(is_staff=False).post("/admin/rota/dead/")]
        assert [(each.status_code, each["Location"].partition("?")[0]) for each in answers] == [
            (302, "/admin/login/")
        ] * 2

    def test_the_admin_page_shows_an_error_if_redis_is_unreachable(self, browser: Browser) -> None:
        with set_up_again({"redis_url": "redis://127.0.0.1:1"}):
            pages = [browser.get("/admin/rota/"), browser.post("/admin/rota/dead/", {"purge": "1", "id": "x"})]
        assert (pages[0].status_code, "127.0.0.1:1" in pages[0].content.decode()) == (503, True)
        assert pages[1].status_code == 302


def test_client_and_fleet_use_the_password_provider_of_the_django_settings(server: Server) -> None:
    with set_up_again({"redis_url": server.url, "redis_credentials": "nowhere:login"}):
        call_command("check")
        assert variables_of_project()["ROTA_REDIS_CREDENTIALS"] == "nowhere:login"
        with pytest.raises(
            rota.Unavailable,
            match="cannot be used: redis_credentials = 'nowhere:login': module 'nowhere' cannot",
        ):
            default_client().peek("q")
    with set_up_again({"redis_url": server.url, "redis_credentials": 5}), pytest.raises(SystemCheckError) as told:
        call_command("check")
    assert 'ROTA["redis_credentials"]: redis_credentials must be a string' in str(told.value)
