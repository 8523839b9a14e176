"""A worker of a user's own: plain Temporal activities that know nothing of Forebay.

    python worker.py ADDRESS TASK_QUEUE
"""

import asyncio
import sys

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

tried = set()


@activity.defn(name="thumbnail")
async def thumbnail(order):
    return {"made": order["name"], "attempt": activity.info().attempt}


@activity.defn(name="flaky")
async def flaky(order):
    if order["name"] not in tried:
        tried.add(order["name"])
        raise RuntimeError("not yet")
    return "at last"


@activity.defn(name="refuses")
async def refuses(_order):
    raise ApplicationError("there is no such order", non_retryable=True)


@activity.defn(name="silent")
async def silent(_order):
    await asyncio.sleep(60)


async def main():
    client = await Client.connect(sys.argv[1])
    async with Worker(client, task_queue=sys.argv[2], activities=[thumbnail, flaky, refuses, silent]):
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
