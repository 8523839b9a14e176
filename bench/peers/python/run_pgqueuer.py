"""PgQueuer: an entrypoint may limit how many of its jobs run in all processes, so a tenant is an entrypoint."""

import asyncio
import json
from datetime import timedelta

import asyncpg
from peer import filled, main, options, paced, perform, say, until_stdin_closes, url, version_of
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

TENANTS = ["a", "capped", "flood", "quiet"]


async def setup() -> None:
    await Queries(AsyncpgDriver(await asyncpg.connect(url))).install()
    say(event="ready", version=version_of("pgqueuer"))


async def fill() -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))

    async def store(jobs):
        size = len(jobs)
        await queries.enqueue([job["tenant"] for job in jobs], [json.dumps(job).encode() for job in jobs], [0] * size)

    await filled(1_000, store)


async def send() -> None:
    queries = Queries(AsyncpgPoolDriver(await asyncpg.create_pool(url, min_size=4, max_size=4)))
    await paced(lambda job: queries.enqueue(job["tenant"], json.dumps(job).encode()))


async def work() -> None:
    pgq = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))
    for tenant in TENANTS:
        limit = options["limit"] if tenant in ("capped", "flood") else 0

        @pgq.entrypoint(tenant, concurrency_limit=limit)
        async def handle(job) -> None:
            await perform(json.loads(job.payload))

    concurrency = None if options["batches"] else options["concurrency"]
    batch = 1_000 if options["batches"] else max(1, options["concurrency"] // 2)
    running = pgq.run(
        batch_size=batch, max_concurrent_tasks=concurrency, dequeue_timeout=timedelta(seconds=0.5)
    )
    await asyncio.gather(running, until_stdin_closes())


main(setup=setup, fill=fill, send=send, work=work)
