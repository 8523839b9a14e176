#!/usr/bin/env python3
"""A worker for TASK nodes, with nothing but the standard library.

    FOREBAY_URL=http://127.0.0.1:7400 FOREBAY_KEY=fbk_... python3 examples/worker.py invoices

It claims a task of its queues at a time, keeps it by heartbeats from a thread of their own, and completes or fails it. A worker that was
silent for longer than its lease is told `lease_lost`: another one has the task by then, and what this one made of it is dropped. On SIGTERM
or Ctrl-C it finishes the task in hand and ends. Put your own work into `perform`.
"""

import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

URL = os.environ.get("FOREBAY_URL", "http://127.0.0.1:7400").rstrip("/")
KEY = os.environ.get("FOREBAY_KEY", "")
WORKER = f"{socket.gethostname()}-{os.getpid()}"
# How long a claim waits for a task, and how long the server waits for a heartbeat.
WAIT, LEASE = "20s", os.environ.get("FOREBAY_LEASE", "30s")

# The longest text of a failure that the server takes, and a little less.
LONGEST = 4000

stopping = threading.Event()


class Never(Exception):
    """What another attempt could not help."""


class LeaseLost(Exception):
    """Another worker has the task."""


class Refused(Exception):
    """What the server will not take, however often it is asked."""

    def __init__(self, status, reason):
        super().__init__(f"{status} {reason}")
        self.status = status


class Trouble(Exception):
    """No answer, or none of the server's own: the same may be answered in a while."""


def perform(task, progress):
    """The work. What it returns is the node's output; `progress(anything)` is told with the next heartbeat."""
    given = task["input"] or {}
    if not isinstance(given, dict):
        raise Never("the input is not an object")
    for step in range(int(given.get("steps", 1))):
        progress({"step": step + 1})
        time.sleep(float(given.get("seconds", 0)))
    if "fail" in given:
        raise (Never if given.get("never") else RuntimeError)(given["fail"])
    return {"worker": WORKER, "attempt": task["attempt"], "given": given}


def call(path, body):
    """One request: its answer, or LeaseLost, Refused or Trouble."""
    request = urllib.request.Request(
        f"{URL}/api/v1/{path}",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise refusal(error) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Trouble(f"{path}: {error or type(error).__name__}") from None


def refusal(error):
    """What an answer that is no success means."""
    try:
        problem = json.loads(error.read())
        code, reason = problem["code"], problem.get("detail")
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError, AttributeError):
        return Trouble(f"the server answered {error.code}, and not in its own words")
    if code == "lease_lost":
        return LeaseLost(reason)
    if error.code == 429 or error.code >= 500:
        return Trouble(f"{error.code} {reason}")
    return Refused(error.code, reason)


def insist(path, body):
    """The same until it is answered: the server knows an end that comes twice."""
    while True:
        try:
            return call(path, body)
        except Trouble as error:
            say(f"{error}; trying again")
            time.sleep(1)


def say(text):
    print(text, flush=True)


class Heartbeat(threading.Thread):
    """Keeps one task for as long as it runs, and knows whether that worked."""

    def __init__(self, task):
        super().__init__(daemon=True)
        self.task, self.over, self.lost, self.progress = task, threading.Event(), False, None

    def run(self):
        while not self.over.wait(self.task["leaseSeconds"] / 3):
            progress = self.progress
            try:
                call(f"tasks/{self.task['id']}/heartbeat", {"claimId": self.task["claimId"], "progress": progress})
            except LeaseLost:
                self.lost = True
                return
            except Trouble as error:
                say(f"no heartbeat: {error}")
            except Exception as error:  # A progress that cannot be told must not cost the lease.
                say(f"no heartbeat: {error}")
                self.progress = None if self.progress is progress else self.progress

    def note(self, progress):
        if self.lost:
            raise LeaseLost()
        self.progress = progress


def failure(error, retryable):
    """A failure as the server takes it: some words, and not too many."""
    said = str(error).replace("\0", " ").strip() or type(error).__name__
    return "fail", {"message": said[:LONGEST], "retryable": retryable}


def work(task, heartbeat):
    """Does it: how it ended, and what is told."""
    try:
        output = perform(task, heartbeat.note)
    except LeaseLost:
        raise
    except Exception as error:  # Whatever goes wrong is this task's: the worker goes on.
        return failure(error, not isinstance(error, Never))
    try:
        json.dumps(output, allow_nan=False)
    except (TypeError, ValueError) as error:
        return failure(f"its output is no JSON: {error}", False)
    return "complete", {"output": output}


def serve(task):
    name = f"{task['queue']} {task['node']} of {task['executionId']}"
    heartbeat = Heartbeat(task)
    heartbeat.start()
    try:
        verb, body = work(task, heartbeat)
        try:
            insist(f"tasks/{task['id']}/{verb}", {"claimId": task["claimId"], **body})
        except Refused as refused:
            if verb == "fail" or refused.status in (401, 403, 409):
                raise
            verb, body = failure(f"the server does not take its output: {refused}", False)
            insist(f"tasks/{task['id']}/{verb}", {"claimId": task["claimId"], **body})
        say(f"{name}: {verb}")
    except LeaseLost:
        say(f"{name}: the lease was lost, another worker has it")
    except Refused as refused:
        say(f"{name}: its end could not be told: {refused}")
    finally:
        heartbeat.over.set()


def main(queues):
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    say(f"{WORKER} serves {', '.join(queues)}")
    while not stopping.is_set():
        try:
            claimed = call("tasks/claim", {"queues": queues, "worker": WORKER, "wait": WAIT, "lease": LEASE})
        except Trouble as error:
            say(f"{error}; trying again")
            stopping.wait(1)
            continue
        except Refused as refused:
            sys.exit(f"tasks/claim: {refused}")
        for task in claimed["items"]:
            serve(task)
    say("stopped")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
