"""A mail server for tests: aiosmtpd, with STARTTLS and authentication.

Arguments: certificate, key, mechanism. It prints its port, then each message as
a line of JSON, and ends with its standard input.
"""

import asyncio
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("b@"):
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        message = {"to": envelope.rcpt_tos, "raw": envelope.original_content.decode(), "tls": session.ssl is not None}
        print(json.dumps(message), flush=True)
        return "250 OK: kept"


def authenticate(server, session, envelope, mechanism, data):
    good = mechanism == wanted and data.login == b"shop" and data.password == b"p@ss"
    return AuthResult(success=good, handled=False)


certificate, key, wanted = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)


def new_session():
    return SMTP(
        Handler(), tls_context=context, require_starttls=True, authenticator=authenticate, auth_required=True,
        auth_exclude_mechanism=[m for m in ("LOGIN", "PLAIN") if m != wanted], enable_SMTPUTF8=True,
    )


async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(new_session, "127.0.0.1", 0)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
