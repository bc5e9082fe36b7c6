"""Books payments into a ledger: a sink of Waybill's, in Python.

The first half is the business. The second half speaks the protocol, version 1 of
docs/process-protocol.md, and can be taken as it is.
"""

import base64
import concurrent.futures
import json
import os
import sys
import threading


class Refused(Exception):
    """This notification can never be handled."""


class Ledger:
    """A file with a line for each payment, and none twice.

    A notification can come again: after a crash, or when its answer came too
    late. The ledger knows it by its id, which is always the same.
    """

    def __init__(self, path):
        self.lock = threading.Lock()
        self.file = open(path, "a+", encoding="utf-8")
        self.file.seek(0)
        self.known = {line.split()[0] for line in self.file}

    def book(self, id, text):
        """Returns whether the payment is new."""
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
        raise TimeoutError("the account is locked")  # any other error: try again
    new = ledger.book(notification["id"], f"{payment['account']} {payment['cents']}")
    if payment["account"] == "unlucky" and new:
        print("power failure between booking and answer")
        os._exit(1)
    return "booked" if new else "was booked before"


def serve(handle, workers=8):
    """Hands deliveries to handle, as many at once as there are workers, until
    stdin ends; those that have begun then are still answered."""
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
                waiting[number].cancel()  # if it has not begun


if __name__ == "__main__":
    ledger = Ledger(os.environ["LEDGER"])
    serve(handle)
