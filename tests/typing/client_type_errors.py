"""Calls that a type checker must reject. This file is not run. Each line has an ignore comment, and mypy's strict mode
reports the comment if the line has no error.
"""

import rota


@rota.task
def resize(image_id: int, size: str = "s") -> str:
    return f"{image_id}{size}"


@rota.task
async def fetch(url: str) -> bytes:
    return url.encode()


def calls(client: rota.Client) -> None:
    resize.enqueue("7")  # type: ignore[arg-type]  # a str
    resize.enqueue()  # type: ignore[call-arg]  # no image_id
    resize.enqueue(7, colour="red")  # type: ignore[call-arg]  # no such parameter
    resize.enqueue_in(60, "7")  # type: ignore[arg-type]  # a str
    resize.enqueue_at("tomorrow", 7)  # type: ignore[arg-type]  # not a datetime
    resize.using(queue="bulk").enqueue("7")  # type: ignore[arg-type]  # a str
    resize.using(on_commit=3)  # type: ignore[arg-type]  # takes no callback
    resize.using(front=1)  # type: ignore[arg-type]  # neither
    resize.using(priority=3)  # type: ignore[call-arg]  # no such option
    resize.call(7, "l", 3)  # type: ignore[call-arg]  # too many
    fetch.enqueue(7)  # type: ignore[arg-type]  # an int
    client.enqueue("resize", arguments=[7])  # type: ignore[call-overload]  # no such option
    client.enqueue(resize, 7)  # type: ignore[call-overload]  # no call of it
    client.enqueue(resize)  # type: ignore[call-overload]  # as above
    client.enqueue_many([resize])  # type: ignore[arg-type]  # as above
    rota.chain(resize)  # type: ignore[arg-type]  # as above
    rota.chain([resize.call(7)])  # type: ignore[arg-type]  # one by one
    rota.group([resize])  # type: ignore[list-item]  # no call of it
    rota.group([], then=resize)  # type: ignore[arg-type]  # as above
    rota.map(print, [7])  # type: ignore[arg-type]  # no task
    rota.map(resize, 7)  # type: ignore[arg-type]  # no items
    rota.map(resize, [7], chunksize=3)  # type: ignore[call-arg]  # no such option
    resize.delay(7)  # type: ignore[attr-defined]  # no such method
    resize.enqueue(7).get()  # type: ignore[attr-defined]  # as above
    rota.configure("redis://localhost")  # type: ignore[call-arg]  # keyword only
    rota.task(retires=3)  # type: ignore[call-overload]  # no such option
    rota.task(pydantic="yes")  # type: ignore[call-overload]  # not a bool
    rota.task(cron=5)  # type: ignore[call-overload]  # not a str
    rota.task(every="30s")  # type: ignore[call-overload]  # not seconds
    rota.task(schedules=["* * * * *"])  # type: ignore[list-item]  # not a rota.Cron
    rota.Cron("0 3 * * *", "UTC")  # type: ignore[call-arg]  # keyword only
    rota.Every(30, missed="some")  # type: ignore[arg-type]  # no such rule
    rota.Every(30, timezone="UTC")  # type: ignore[call-arg]  # an interval goes by no clock
    client.schedules.put("nightly", resize, "0 3 * * *")  # type: ignore[arg-type]  # not a rota.Cron


async def awaited(client: rota.AsyncClient) -> None:
    await resize.aenqueue("7")  # type: ignore[arg-type]  # a str
    await resize.using(queue="bulk").aenqueue()  # type: ignore[call-arg]  # no image_id
    await client.enqueue("resize", arguments=[7])  # type: ignore[call-overload]  # no such option
    assert client.status("a").state  # type: ignore[attr-defined]  # not awaited
