"""The types of the public names. This file is not run, but `test_client_types` checks its types."""

from collections.abc import Coroutine, Generator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type
from uuid import UUID

import rota


@rota.task
def resize(image_id: int, size: str = "s") -> str:
    return f"{image_id}{size}"


@rota.task(queue="mail", retries=5, time_limit=timedelta(seconds=30), backoff=lambda failures: failures * 2.0)
def send(to: str) -> None: ...


@rota.task
async def fetch(url: str) -> bytes:
    return url.encode()


@rota.task(queue="web")
async def crawl(url: str) -> int:
    return len(url)


@rota.task(cron="*/5 * * * *", timezone="Europe/Zurich")
def refresh() -> int:
    return 1


@rota.task(every=timedelta(seconds=30), queue="mail")
async def ping() -> str:
    return "pong"


@rota.task(
    schedules=[
        rota.Cron("0 3 * * *", timezone="Europe/Zurich", args=["day"], kwargs={"n": 1}, missed="all", overlap="queue"),
        rota.Every(3600, jitter=60, start=datetime.now(UTC), end=datetime.now(UTC), name="hourly", queue="mail"),
    ]
)
def report(span: str, n: int = 0) -> None: ...


@rota.task(pydantic=True, result_ttl=60)
def bill(customer: UUID, lines: list[tuple[str, Decimal]], due: datetime | None = None) -> Decimal:  # noqa: ARG001
    return sum((price for _, price in lines), Decimal(0))


assert_type(bill.enqueue(UUID(int=1), [("a", Decimal(1))], due=datetime.now(UTC)).result(), Decimal)


@rota.on_worker_start
def start() -> None: ...


@rota.around_task
def timed(task: rota.CurrentTask) -> Generator[None, None, None]:
    assert_type(task.due_at, datetime)
    yield


@rota.on_failure
def track(task: rota.CurrentTask, failure: rota.AttemptFailure) -> None:
    assert_type(task.trace_id, str)
    assert_type(failure.exception, BaseException | None)
    assert_type(failure.retry_in_seconds, float | None)


@rota.on_dead
def tell(task: rota.CurrentTask, reason: str) -> None:
    assert_type(task.attempt, int)
    assert_type(reason, str)


def calls() -> None:
    assert_type(resize(7), str)
    assert_type(resize.enqueue(7, size="l"), rota.Handle[str])
    assert_type(resize.enqueue_in(60, 7), rota.Handle[str])
    assert_type(resize.enqueue_in(timedelta(minutes=1), 7, "l"), rota.Handle[str])
    assert_type(resize.enqueue_at(datetime.now(UTC), 7), rota.Handle[str])
    assert_type(resize.using(queue="bulk", delay=60, id="img-7").enqueue(7), rota.Handle[str])
    assert_type(resize.using(on_commit=lambda callback: callback()).enqueue(7), rota.Handle[str])
    assert_type(resize.call(7), rota.Call[str])
    assert_type(rota.enqueue_many(resize.call(n) for n in range(3)), list[rota.Handle[str]])
    assert_type(rota.enqueue_many([resize.call(1), ping.call()]), list[rota.Handle[str]])
    of_several: list[rota.Handle[object]] = [*rota.enqueue_many([resize.call(1), refresh.call()])]
    mixed: list[rota.Call[object]] = [resize.call(1), refresh.call(), rota.Call("by-name", queue="q")]
    del of_several, mixed
    assert_type(rota.status("id"), rota.TaskStatus)
    rota.cancel("id", kill_after=5)
    assert_type(rota.default_client(), rota.Client)
    assert_type(send.enqueue("a@example.org"), rota.Handle[None])
    assert_type(resize.enqueue(7).result(timeout=5), str)
    assert_type(resize.enqueue(7).result(timedelta(seconds=5)), str)
    assert_type(resize.enqueue(7).wait(), rota.TaskStatus)
    assert_type(resize.enqueue(7).wait_started(timeout=5), rota.TaskStatus)
    start()


async def coroutines() -> None:
    fetched: Coroutine[Any, Any, bytes] = fetch("u")
    fetched.close()
    assert_type(fetch.enqueue("u"), rota.Handle[bytes])
    assert_type(fetch.enqueue("u").result(), bytes)
    assert_type(await crawl("u"), int)
    assert_type(crawl.using(delay=1).enqueue("u"), rota.Handle[int])


def by_name(client: rota.Client) -> None:
    assert_type(client.enqueue("resize", args=[7], queue="images", delay=60), rota.Handle[Any])
    assert_type(client.enqueue(resize.call(7)), rota.Handle[str])
    call = rota.Call("resize", args=[7], queue="images")
    assert_type(call, rota.Call[Any])
    assert_type(client.execute_later("images", "resize", [7], delay=60), str)
    assert_type(client.status("id"), rota.TaskStatus)
    assert_type(client.wait("id", timeout=5), rota.TaskStatus)
    assert_type(client.result("id"), Any)
    assert_type(client.status("id").attempts, tuple[rota.AttemptRecord, ...])
    assert_type(client.status("id").progress, rota.Progress | None)
    assert_type(client.peek("q", "scheduled", task="resize", limit=5), list[rota.QueuedTask])
    assert_type(client.explain(5, queue="mail"), rota.Explanation)
    assert_type(client.pause("q"), bool)
    with rota.Client("redis://localhost", namespace="shop") as other:
        assert_type(other, rota.Client)


def flows(client: rota.Client) -> None:
    chain = rota.chain(resize.call(1), ping.call(), rota.Call("by-name", queue="q"))
    group = rota.group([resize.call(1), chain], then=send.call("a"), on_dead=chain, id="g")
    assert_type(chain, rota.Chain)
    assert_type(group, rota.Group)
    assert_type(chain.enqueue(on_commit=None), rota.ChainHandle)
    assert_type(client.enqueue(chain).ids, tuple[str, ...])
    assert_type(client.enqueue(chain).wait(5), rota.TaskStatus)
    handle = group.enqueue(client=client)
    assert_type(handle, rota.GroupHandle)
    assert_type(client.enqueue(group, on_commit=None), rota.GroupHandle)
    assert_type(client.group("g").status(), rota.GroupStatus)
    assert_type(handle.wait(timeout=5).left, int)
    assert_type(handle.cancel(), bool)
    assert_type(handle.add(resize.call(n) for n in range(3)), list[rota.Handle[Any] | rota.ChainHandle])
    mapped = rota.map(resize.using(queue="bulk"), range(3), chunk=1, max_waiting=2, then=chain, progress=True)
    assert_type(mapped, rota.GroupHandle)
    assert_type(client.map(resize, iter([1]), id="m", progress=print), rota.GroupHandle)
    rota.enqueue_many([resize.call(1)], progress=print)


def periodic(client: rota.Client) -> None:
    assert_type(refresh(), int)
    assert_type(refresh.enqueue(), rota.Handle[int])
    assert_type(ping.enqueue(), rota.Handle[str])
    assert_type(report.enqueue("day"), rota.Handle[None])
    schedules = client.schedules
    assert_type(schedules.list(), list[rota.ScheduleStatus])
    assert_type(schedules.get("hourly"), rota.ScheduleStatus | None)
    assert_type(schedules.upcoming("hourly", 3), list[datetime])
    assert_type(schedules.remove("hourly"), bool)
    assert_type(schedules.pause("hourly"), bool)
    assert_type(schedules.resume("hourly"), bool)
    assert_type(schedules.run_now("hourly"), rota.Handle[Any])
    schedules.put("nightly", report, rota.Cron("0 3 * * *", args=["day"]))
    schedules.put("nightly", "report", rota.Every(timedelta(hours=1), queue="mail"))


def consuming(client: rota.Client) -> None:
    with client.consumer("sold-email", "expired-email", limit=8, lease_seconds=timedelta(seconds=30)) as consumer:
        assert_type(consumer, rota.Consumer)
        for task in consumer:
            assert_type(task, rota.LeasedTask)
            with task as same:
                assert_type(same, rota.LeasedTask)
                assert_type(task.args, tuple[Any, ...])
                assert_type(task.kwargs, Mapping[str, Any])
                assert_type(task.cancelled, bool)
                assert_type(task.due_at, datetime)
            task.done({"n": 1})
            task.retry(delay=timedelta(minutes=1))
            task.dead("why")
            assert_type(task.release(), None)
        consumer.stop()


def inside() -> None:
    assert_type(rota.current_task(), rota.CurrentTask)
    rota.current_task().progress(1, 4, "pages")
    raise rota.Retry(delay=60)


async def awaited(client: rota.AsyncClient) -> None:
    assert_type(await resize.aenqueue(7), rota.AsyncHandle[str])
    assert_type(await fetch.using(delay=3, client=client).aenqueue("x"), rota.AsyncHandle[bytes])
    assert_type(await rota.aenqueue_many([resize.call(7)]), list[rota.AsyncHandle[str]])
    assert_type(await rota.chain(resize.call(1)).aenqueue(client=client), rota.AsyncChainHandle)
    assert_type(await client.enqueue(rota.chain(resize.call(1))), rota.AsyncChainHandle)
    assert_type(await (await client.enqueue(rota.group([]))).wait(5), rota.GroupStatus)
    assert_type(await rota.amap(resize, [1]), rota.AsyncGroupHandle)
    assert_type(await client.group("g").cancel(), bool)
    handle = await client.enqueue(crawl.call("x"))
    assert_type(await handle.result(5), int)
    assert_type(await handle.status(), rota.TaskStatus)
    assert_type(await client.peek("mail"), list[rota.QueuedTask])
    assert_type(rota.default_async_client(), rota.AsyncClient)
    async with client.consumer("mail") as tasks, client.events() as events:
        async for task in tasks:
            assert_type(task, rota.AsyncLeasedTask)
            await task.done()
        async for event in events:
            assert_type(event, rota.TaskEvent)
    try:
        await resize.aenqueue(7)
    except TimeoutError as error:
        doubt = rota.Uncertain.behind(error)
        assert_type(doubt, rota.Uncertain | None)
    rota.configure(timeout_seconds=2)
