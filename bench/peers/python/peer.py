"""What every peer written in Python shares: its order, the events it reports, and the handler of a job.

    python PEER.py MODE DATABASE_URL OPTIONS

A mode is one of setup, fill, send and work. Each event is one line of JSON on standard output. A worker works until
its standard input closes, then it reports what it measured and ends immediately.
"""

import asyncio
import json
import os
import sys
import time
from importlib.metadata import version as version_of

__all__ = ["filled", "main", "options", "paced", "perform", "say", "until_stdin_closes", "url", "version_of"]

mode, url = sys.argv[1:3]
options = json.loads(sys.argv[3])

_latencies: list[float] = []
_begun = 0


def say(**event):
    print(json.dumps(event), flush=True)


def now() -> int:
    """Microseconds of a clock that all processes of a machine share."""
    return time.monotonic_ns() // 1000


async def perform(job: dict) -> None:
    """The handler of every peer. It counts all jobs, or those with a time of sending if only these are measured."""
    global _begun
    if job["at"] > 0:
        _latencies.append((now() - job["at"]) / 1000)
    if job["at"] > 0 or not options.get("timed"):
        _begun += 1
        if _begun == 1:
            say(event="first")
        if _begun == options.get("expect"):
            say(event="all")
    if options.get("trace"):
        name = f"{os.getpid()}-{_begun}"
        say(event="begins", id=name, at=time.time_ns() // 1000)
        await asyncio.sleep(job["hold"] / 1000)
        say(event="ends", id=name, at=time.time_ns() // 1000)
    elif job["hold"] > 0:
        await asyncio.sleep(job["hold"] / 1000)


async def paced(send) -> None:
    """Sends `rate` jobs a second, each without waiting for those before it."""
    start, sent = now(), []
    for number in range(options["count"]):
        wait = (start - now()) / 1e6 + number / options["rate"]
        if wait > 0:
            await asyncio.sleep(wait)
        sent.append(asyncio.create_task(send({"at": now(), "tenant": options["tenant"], "hold": 0})))
    await asyncio.gather(*sent)
    say(event="sent", count=len(sent))


async def filled(batch: int, store) -> None:
    """Stores `count` jobs in batches, or as many as the seconds allow."""
    start, count = now(), 0
    while count < options["count"] and now() - start < options["seconds"] * 1e6:
        size = min(batch, options["count"] - count)
        await store([{"at": 0, "tenant": options["tenant"], "hold": options["hold"]}] * size)
        count += size
    say(event="filled", count=count)


async def until_stdin_closes() -> None:
    say(event="ready")
    await asyncio.to_thread(sys.stdin.read)
    say(event="end", begun=_begun, latencies=_latencies)
    os._exit(0)


def main(**modes) -> None:
    import uvloop

    uvloop.run(modes[mode]())
