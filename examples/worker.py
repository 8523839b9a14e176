#!/usr/bin/env python3
"""A worker for TASK nodes, with nothing but the standard library.

    FOREBAY_URL=http://127.0.0.1:7400 FOREBAY_KEY=fbk_... python3 examples/worker.py invoices

It claims a task of its queues at a time, keeps it by heartbeats from a thread of their own, and completes or fails it. A worker that was
silent for longer than its lease is told `lease_lost`: another one has the task by then, and what this one made of it is dropped. On SIGTERM
or Ctrl-C it finishes the task in hand and ends. Put your own work into `perform`.
"""

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

stopping = threading.Event()


class Never(Exception):
    """What another attempt could not help."""


class LeaseLost(Exception):
    """Another worker has the task."""


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
    """One request: its answer, or LeaseLost, or an error to try again after."""
    request = urllib.request.Request(
        f"{URL}/api/v1/{path}",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        problem = json.loads(error.read() or b"{}")
        if problem.get("code") == "lease_lost":
            raise LeaseLost(problem.get("detail")) from None
        if error.code in (429, 502, 503, 504):
            raise ConnectionError(problem.get("detail")) from None
        sys.exit(f"{path}: {error.code} {problem.get('detail')}")


def insist(path, body):
    """The same until it is answered: the server knows an end that comes twice."""
    while True:
        try:
            return call(path, body)
        except OSError as error:
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
            try:
                call(f"tasks/{self.task['id']}/heartbeat", {"claimId": self.task["claimId"], "progress": self.progress})
            except LeaseLost:
                self.lost = True
                return
            except OSError as error:
                say(f"no heartbeat: {error}")

    def note(self, progress):
        if self.lost:
            raise LeaseLost()
        self.progress = progress


def serve(task):
    name = f"{task['queue']} {task['node']} of {task['executionId']}"
    heartbeat = Heartbeat(task)
    heartbeat.start()
    try:
        try:
            end = ("complete", {"output": perform(task, heartbeat.note)})
        except LeaseLost:
            raise
        except Exception as error:  # Whatever goes wrong is this task's: the worker goes on.
            end = ("fail", {"message": str(error) or type(error).__name__, "retryable": not isinstance(error, Never)})
        verb, body = end
        insist(f"tasks/{task['id']}/{verb}", {"claimId": task["claimId"], **body})
        say(f"{name}: {verb}")
    except LeaseLost:
        say(f"{name}: the lease was lost, another worker has it")
    finally:
        heartbeat.over.set()


def main(queues):
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    say(f"{WORKER} serves {', '.join(queues)}")
    while not stopping.is_set():
        try:
            claimed = call("tasks/claim", {"queues": queues, "worker": WORKER, "wait": WAIT, "lease": LEASE})
        except OSError as error:
            say(f"{error}; trying again")
            stopping.wait(1)
            continue
        for task in claimed["items"]:
            serve(task)
    say("stopped")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
