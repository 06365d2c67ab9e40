"""ClickHouse's HTTP interface over chDB, the ClickHouse engine as a Python library. Linux only, loopback only.

    clickhouse_front.py DATA_DIRECTORY

Environment: CLICKHOUSE_PORT (8123), CLICKHOUSE_USER (default), CLICKHOUSE_PASSWORD (empty: no authentication).

Guarantees: the engine receives an INSERT only when its whole body has arrived intact, so a lost connection or an altered
block inserts nothing; the answer is 200 only after the engine has committed the insert, in the table and in the targets of
its views; settings, database and parameters of a request apply to that request alone.
Refuses a port in use, a data directory in use, and bodies above BODY_BYTES_MAX.
"""
from __future__ import annotations

import asyncio
import email.parser
import email.policy
import errno
import hmac
import json
import os
import re
import secrets
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

from aiohttp import BasicAuth, web

from clickhouse_codec import (
    DbError, decode_content, decode_native_blocks, encode_content, encode_native_blocks, native_for_revision, too_large,
)
from clickhouse_engine import Engine, Result

STATEMENTS_AT_ONCE = 8
BODY_BYTES_MAX = 256 << 20
URI_BYTES_MAX = 1 << 20
SHUTDOWN_SECONDS_MAX = 60

# URL parameters that are not settings; all others are settings or param_*. Sessions, roles and quotas do not exist here:
# their parameters are accepted and have no effect.
NOT_SETTINGS = {
    "query", "database", "default_format", "user", "password", "compress", "decompress", "query_id", "role",
    "session_id", "session_timeout", "session_check", "close_session", "quota_key", "stacktrace", "buffer_size",
    "wait_end_of_query", "client_protocol_version",
}
SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

# As in the server's exceptionCodeToHTTPStatus; every other code is 500.
STATUS_BY_CODE = {
    **dict.fromkeys((194,), 401),
    **dict.fromkeys((192, 193, 497, 512, 516), 403),
    **dict.fromkeys((6, 8, 15, 25, 26, 27, 36, 37, 38, 41, 44, 53, 62, 72, 117, 123, 167, 168, 223, 321, 376, 427,
                     441, 675, 676), 400),
    **dict.fromkeys((46, 47, 50, 56, 60, 63, 73, 78, 81, 115, 152, 336, 511), 404),
    159: 408, 381: 411, 229: 413, 779: 415, 48: 501, 76: 503, 209: 503, 439: 503,
}

CONTENT_TYPES = {"JSON": "application/json", "CSV": "text/csv; charset=UTF-8", "Ro": "application/octet-stream",
                 "Native": "application/octet-stream", "T": "text/tab-separated-values; charset=UTF-8"}


class Front:
    """Answers requests; the engine runs in a pool of threads, so a slow statement does not block the others."""

    def __init__(self, engine: Engine, user: str, password: str):
        self.engine = engine
        self.user, self.password = user, password
        self.threads = ThreadPoolExecutor(STATEMENTS_AT_ONCE, thread_name_prefix="statement")

    async def ping(self, _request: web.Request) -> web.Response:
        return web.Response(text="Ok.\n")

    async def statement(self, request: web.Request) -> web.Response:
        query_id = request.query.get("query_id") or str(uuid.uuid4())
        headers = {"X-ClickHouse-Query-Id": query_id, "X-ClickHouse-Server-Display-Name": "milepost-local",
                   "X-ClickHouse-Timezone": self.engine.timezone,
                   # Without a tag the Rust client mistakes data that ends like an old server's exception for an exception.
                   "X-ClickHouse-Exception-Tag": secrets.token_hex(8)}
        try:
            self.authenticate(request)
            text, form = await read_statement(request)
            if not text.strip():
                return web.Response(text="Ok.\n", headers=headers)
            database = request.query.get("database") or request.headers.get("X-ClickHouse-Database", "")
            output_format = (request.query.get("default_format") or request.headers.get("X-ClickHouse-Format")
                             or "TabSeparated")
            settings = settings_of({**request.query, **form})
            if request.method != "POST":
                settings["readonly"] = "2"  # as on a server, GET changes nothing, whatever its statement is
            run = asyncio.get_running_loop().run_in_executor(
                self.threads, self.engine.run, text, database, settings, output_format)
            # The engine cannot be interrupted: a client that disconnects does not cancel its statement.
            result = await asyncio.shield(run)
            return respond(request, result, headers)
        except DbError as error:
            print(f"{request.method} {query_id}: {error}", file=sys.stderr, flush=True)
            headers["X-ClickHouse-Exception-Code"] = str(error.code)
            text = f"{error} (version {self.engine.version} (official build))\n"
            return web.Response(status=STATUS_BY_CODE.get(error.code, 500), text=text, headers=headers)

    def authenticate(self, request: web.Request) -> None:
        if not self.password:
            return
        user = request.headers.get("X-ClickHouse-User") or request.query.get("user") or ""
        password = request.headers.get("X-ClickHouse-Key") or request.query.get("password") or ""
        if "Authorization" in request.headers:
            try:
                basic = BasicAuth.decode(request.headers["Authorization"], encoding="utf-8")
            except ValueError:
                basic = BasicAuth("")
            user, password = basic.login, basic.password
        user = user or "default"
        # surrogateescape: a header need not be UTF-8.
        is_right = hmac.compare_digest(password.encode(errors="surrogateescape"), self.password.encode())
        if user != self.user or not is_right:
            raise DbError(516, "AUTHENTICATION_FAILED",
                          f"{user}: Authentication failed: password is incorrect, or there is no user with such name")


async def read_statement(request: web.Request) -> tuple[bytes, dict[str, str]]:
    """Returns the `query` parameter and the whole body as one text, and the other fields of a form. Fails if the body ends early."""
    body = bytearray()
    try:
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > BODY_BYTES_MAX:
                raise too_large(BODY_BYTES_MAX)
    except (ConnectionError, asyncio.IncompleteReadError, web.RequestPayloadError) as error:
        raise DbError(33, "CANNOT_READ_ALL_DATA", f"Request body ends early: {error}") from None
    data = decode_content(bytes(body), request.headers.get("Content-Encoding", "").lower(), BODY_BYTES_MAX)
    query, form = request.query.get("query", "").encode(), {}
    if request.content_type == "multipart/form-data":
        data, form = read_form(request.headers["Content-Type"], data)
    elif request.query.get("decompress") == "1":
        data = decode_native_blocks(data, BODY_BYTES_MAX)
    return query + b"\n" + data if query and data else query or data, form


def read_form(content_type: str, body: bytes) -> tuple[bytes, dict[str, str]]:
    """Reads the form in which clients send a statement with param_*. Returns the statement (the field `query`) and the other fields."""
    parser = email.parser.BytesParser(policy=email.policy.HTTP)
    message = parser.parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    if not message.is_multipart() or message.defects:
        raise DbError(36, "BAD_ARGUMENTS", "Request body is not a complete multipart/form-data")
    fields = {}
    for part in message.iter_parts():
        if part.get_filename() is not None:
            raise DbError(48, "NOT_IMPLEMENTED", "External tables (files in a form) are not supported here")
        fields[part.get_param("name", header="Content-Disposition")] = part.get_payload(decode=True).decode()
    return fields.pop("query", "").encode(), fields


def settings_of(parameters: dict[str, str]) -> dict[str, str]:
    settings = {name: value for name, value in parameters.items() if name not in NOT_SETTINGS}
    # `respond` compresses the response: the engine itself has no HTTP.
    settings.pop("enable_http_compression", None)
    for name in settings:
        if not SETTING_NAME.fullmatch(name):
            raise DbError(115, "UNKNOWN_SETTING", f"Setting {name} is neither a builtin setting nor started with a prefix")
    return settings


def respond(request: web.Request, result: Result, headers: dict[str, str]) -> web.Response:
    summary = {
        "read_rows": result.read_rows, "read_bytes": result.read_bytes, "written_rows": result.written_rows,
        "written_bytes": result.written_bytes, "result_rows": result.result_rows, "result_bytes": len(result.body),
        "elapsed_ns": int(result.elapsed_seconds * 1e9),
    }
    headers["X-ClickHouse-Summary"] = json.dumps({name: str(value) for name, value in summary.items()})
    headers["X-ClickHouse-Format"] = result.format
    headers["Content-Type"] = next(
        (kind for start, kind in CONTENT_TYPES.items() if result.format.startswith(start)), "text/plain; charset=UTF-8")
    body = result.body
    if result.format == "Native":
        body = native_for_revision(body, int(request.query.get("client_protocol_version") or 0))
    if request.query.get("compress") == "1":
        body = encode_native_blocks(body)
    elif body and request.query.get("enable_http_compression", "1") == "1":  # on by default, as since 25.10
        accepted = request.headers.get("Accept-Encoding", "").lower()
        encoding = next((known for known in ("lz4", "gzip", "deflate") if known in accepted), None)
        if encoding:
            body = encode_content(body, encoding)
            headers["Content-Encoding"] = encoding
    return web.Response(body=body, headers=headers)


def main() -> None:
    port = int(os.environ.get("CLICKHOUSE_PORT") or 8123)
    try:
        engine = Engine(sys.argv[1])
    except RuntimeError:
        # The engine has printed the reason; its exception does not contain it.
        sys.exit(f"error: cannot open the data in {sys.argv[1]}; does another process use it? See the line above")
    front = Front(engine, os.environ.get("CLICKHOUSE_USER") or "default", os.environ.pop("CLICKHOUSE_PASSWORD", ""))
    # No auto_decompress: read_statement decodes the body, because it knows lz4 and rejects truncated streams.
    app = web.Application()
    app.router.add_get("/ping", front.ping)
    app.router.add_route("*", "/", front.statement)

    async def ready(_app: web.Application) -> None:
        print(f"ClickHouse {engine.version} (chDB) on http://127.0.0.1:{port}", file=sys.stderr, flush=True)

    app.on_startup.append(ready)
    try:
        web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None, handle_signals=True,
                    shutdown_timeout=SHUTDOWN_SECONDS_MAX, handler_cancellation=False, auto_decompress=False,
                    max_line_size=URI_BYTES_MAX, max_field_size=URI_BYTES_MAX)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        sys.exit(f"error: port {port} is in use; set CLICKHOUSE_PORT to a free one")
    finally:
        front.threads.shutdown()
        engine.close()


if __name__ == "__main__":
    main()
