"""Receives webhooks, and prints those whose signature is right.

    WEBHOOK_SECRET=whsec_… python receive.py
"""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["WEBHOOK_SECRET"])


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            event = webhook.verify(body, dict(self.headers))
        except WebhookVerificationError as error:
            self.send_error(401, str(error))
            return
        print(self.headers["webhook-id"], event["type"], event["data"], flush=True)
        self.send_response(204)
        self.end_headers()


port = int(os.environ.get("PORT", "8090"))
ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()
