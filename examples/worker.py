#!/usr/bin/env python3
"""A worker for TASK nodes, with nothing but the standard library.

    FOREBAY_SERVER=http://127.0.0.1:7400 FOREBAY_KEY=fbk_... python3 examples/worker.py invoices

It claims one task of its queues at a time, sends heartbeats from a separate thread, and completes or fails the task. A
worker that was silent for longer than its lease gets `lease_lost`: another worker may have the task, and this worker's
result is discarded. On SIGTERM or Ctrl-C it finishes its current task and ends. Put your own work into `perform`.
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

URL = os.environ.get("FOREBAY_SERVER", "http://127.0.0.1:7400").rstrip("/")
KEY = os.environ.get("FOREBAY_KEY", "")
WORKER = f"{socket.gethostname()}-{os.getpid()}"
# How long a claim waits for a task, and how long the server waits for a heartbeat.
WAIT_SECONDS, LEASE_SECONDS = 20, int(os.environ.get("FOREBAY_LEASE_SECONDS", "30"))
CLAIM = {"workerId": WORKER, "waitSeconds": WAIT_SECONDS, "leaseSeconds": LEASE_SECONDS}

# The longest message of a failure that we send. The server accepts a little more.
LONGEST = 4000

stopping = threading.Event()


class NonRetryable(Exception):
    """A failure that another attempt cannot help."""


class LeaseLost(Exception):
    """Another worker has the task."""


class Refused(Exception):
    """The server refused the request, and would refuse it again."""

    def __init__(self, status, reason):
        super().__init__(f"{status} {reason}")
        self.status = status


class TemporaryError(Exception):
    """No answer, or not one of the server's own. The same request may succeed later."""


def perform(task, progress):
    """Does the work and returns the node's output. `progress(value)` is sent with the next heartbeat."""
    given = task["input"] or {}
    if not isinstance(given, dict):
        raise NonRetryable("the input is not an object")
    for step in range(int(given.get("steps", 1))):
        progress({"step": step + 1})
        time.sleep(float(given.get("seconds", 0)))
    if "fail" in given:
        raise (NonRetryable if given.get("never") else RuntimeError)(given["fail"])
    return {"worker": WORKER, "attempt": task["attempt"], "given": given}


def call(path, body):
    """Sends one request. Returns the answer, or raises LeaseLost, Refused or TemporaryError."""
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
        raise TemporaryError(f"{path}: {error or type(error).__name__}") from None


def refusal(error):
    """The exception for an answer that is not a success."""
    try:
        problem = json.loads(error.read())
        code, reason = problem["code"], problem.get("detail")
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError, AttributeError):
        return TemporaryError(f"the server answered {error.code}, without a problem document")
    if code == "lease_lost":
        return LeaseLost(reason)
    if error.code == 429 or error.code >= 500:
        return TemporaryError(f"{error.code} {reason}")
    return Refused(error.code, reason)


def call_until_answered(path, body):
    """Repeats a request until it is answered. Completing or failing a task twice has one effect."""
    while True:
        try:
            return call(path, body)
        except TemporaryError as error:
            log(f"{error}; trying again")
            time.sleep(1)


def log(text):
    print(text, flush=True)


class Heartbeat(threading.Thread):
    """Extends the lease of one task while it is performed, and knows whether the lease was lost."""

    def __init__(self, task):
        super().__init__(daemon=True)
        self.task, self.stop, self.lost, self.progress = task, threading.Event(), False, None

    def run(self):
        while not self.stop.wait(self.task["leaseSeconds"] / 3):
            progress = self.progress
            try:
                call(f"tasks/{self.task['id']}/heartbeat", {"claimId": self.task["claimId"], "progress": progress})
            except LeaseLost:
                self.lost = True
                return
            except TemporaryError as error:
                log(f"no heartbeat: {error}")
            except Exception as error:  # A progress that cannot be sent must not cost the lease.
                log(f"no heartbeat: {error}")
                self.progress = None if self.progress is progress else self.progress

    def report(self, progress):
        if self.lost:
            raise LeaseLost()
        self.progress = progress


def failure(error, retryable):
    """A failure as the server accepts it: a message that is neither empty nor too long."""
    message = str(error).replace("\0", " ").strip() or type(error).__name__
    return "fail", {"message": message[:LONGEST], "retryable": retryable}


def work(task, heartbeat):
    """Performs the task. Returns how it ended, and the body to send."""
    try:
        output = perform(task, heartbeat.report)
    except LeaseLost:
        raise
    except Exception as error:  # Whatever goes wrong concerns this task only: the worker continues.
        return failure(error, not isinstance(error, NonRetryable))
    try:
        json.dumps(output, allow_nan=False)
    except (TypeError, ValueError) as error:
        return failure(f"the output is not JSON: {error}", False)
    return "complete", {"output": output}


def serve(task):
    """Performs one task and reports its result."""
    name = f"{task['queue']} {task['node']} of {task['executionId']}"
    heartbeat = Heartbeat(task)
    heartbeat.start()
    try:
        verb, body = work(task, heartbeat)
        try:
            call_until_answered(f"tasks/{task['id']}/{verb}", {"claimId": task["claimId"], **body})
        except Refused as refused:
            if verb == "fail" or refused.status in (401, 403, 409):
                raise
            verb, body = failure(f"the server refused the output: {refused}", False)
            call_until_answered(f"tasks/{task['id']}/{verb}", {"claimId": task["claimId"], **body})
        log(f"{name}: {verb}")
    except LeaseLost:
        log(f"{name}: the lease was lost; another worker may have the task")
    except Refused as refused:
        log(f"{name}: the result could not be reported: {refused}")
    finally:
        heartbeat.stop.set()


def main(queues):
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    log(f"{WORKER} serves {', '.join(queues)}")
    while not stopping.is_set():
        try:
            claimed = call("tasks/claim", CLAIM | {"queues": queues})
        except TemporaryError as error:
            log(f"{error}; trying again")
            stopping.wait(1)
            continue
        except Refused as refused:
            sys.exit(f"tasks/claim: {refused}")
        for task in claimed["items"]:
            serve(task)
    log("stopped")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
