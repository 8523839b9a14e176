"""Procrastinate: jobs with the same lock run one after the other, so a limit can only be one."""

import asyncio
import logging

from peer import filled, main, options, paced, perform, say, until_stdin_closes, url, version_of
from procrastinate import App, PsycopgConnector

logging.disable(logging.CRITICAL)
app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=12))
handle = app.task(name="job")(perform)


def task(tenant: str):
    return handle.configure(lock=tenant) if options["limit"] > 0 else handle.configure()


async def setup() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        say(event="ready", version=version_of("procrastinate"))


async def fill() -> None:
    async with app.open_async():
        await filled(1_000, lambda jobs: task(options["tenant"]).batch_defer_async(*({"job": job} for job in jobs)))


async def send() -> None:
    async with app.open_async():
        await paced(lambda job: task(job["tenant"]).defer_async(job=job))


async def work() -> None:
    async with app.open_async():
        running = app.run_worker_async(
            concurrency=options["concurrency"], fetch_job_polling_interval=0.5, install_signal_handlers=False
        )
        await asyncio.gather(running, until_stdin_closes())


main(setup=setup, fill=fill, send=send, work=work)
