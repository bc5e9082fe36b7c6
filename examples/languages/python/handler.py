"""A Waybill sink in Python, which books payments into a ledger.

The first half is the application. The second half, serve, speaks version 1 of the
protocol in docs/process-protocol.md; you can copy it unchanged.
"""

import base64
import concurrent.futures
import json
import os
import sys
import threading


class Refused(Exception):
    """The notification can never be handled: its delivery is dead at once."""


class Ledger:
    """A file with one line for each payment.

    A notification can be delivered again after a crash, or if its answer came too
    late. Each line has the notification's id, by which the ledger recognizes a repeat.
    """

    def __init__(self, path):
        self.lock = threading.Lock()
        self.file = open(path, "a+", encoding="utf-8")
        self.file.seek(0)
        self.known = {line.split()[0] for line in self.file}

    def book(self, id, text):
        """Adds a payment, unless it is booked already. Returns whether it was new."""
        with self.lock:
            if id in self.known:
                return False
            self.file.write(f"{id} {text}\n")
            self.file.flush()
            os.fsync(self.file.fileno())
            self.known.add(id)
            return True


def handle(notification):
    """Handles one notification and returns its receipt. Many threads call it."""
    payment = notification["payload"]
    if payment["cents"] <= 0:
        raise Refused(f"{payment['cents']} cents cannot be booked")
    if payment["account"] == "busy" and notification["attempt"] == 1:
        raise TimeoutError("the account is locked")  # any other error: Waybill tries again
    new = ledger.book(notification["id"], f"{payment['account']} {payment['cents']}")
    if payment["account"] == "unlucky" and new:
        print("power failure between booking and answer")
        os._exit(1)
    return "booked" if new else "already booked"


def serve(handle, workers=8):
    """Calls handle for each delivery, in as many threads as there are workers, until
    stdin ends. Then it answers the deliveries that have begun, and returns."""
    stdin, stdout = sys.stdin.buffer, sys.stdout
    sys.stdout = sys.stderr  # a stray print must not break the protocol
    lock = threading.Lock()

    def write(**line):
        with lock:
            stdout.write(json.dumps(line) + "\n")
            stdout.flush()

    hello = json.loads(stdin.readline())
    if 1 not in hello["versions"]:
        write(line="hello", error="this program speaks version 1")
        return
    write(line="hello", version=1)

    def deliver(line):
        answer = {"line": "answer", "delivery": line["delivery"]}
        try:
            if line.get("base64"):
                line["payload"] = base64.b64decode(line["payload"])
            write(**answer, outcome="ok", receipt=handle(line))
        except Refused as error:
            write(**answer, outcome="permanent", error=str(error))
        except Exception as error:
            write(**answer, outcome="transient", error=repr(error))

    waiting = {}
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for text in stdin:
            line = json.loads(text)
            number = line["delivery"]
            if line["line"] == "deliver":
                waiting[number] = pool.submit(deliver, line)
                waiting[number].add_done_callback(lambda _, number=number: waiting.pop(number, None))
            elif line["line"] == "cancel" and number in waiting:
                waiting[number].cancel()  # does nothing if the call has begun


if __name__ == "__main__":
    ledger = Ledger(os.environ["LEDGER"])
    serve(handle)
