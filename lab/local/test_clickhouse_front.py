"""Tests the behaviour of the local ClickHouse on which milepost and its users rely, through HTTP only.

    lab/local/setup --dev && .local/venv/bin/python -m pytest lab/local
"""
from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import clickhouse_connect
import lz4.frame
import pytest

from clickhouse_codec import decode_native_blocks, encode_native_blocks

HERE = Path(__file__).resolve().parent
PASSWORD = "käse:1"
START_SECONDS_MAX = 60
# Deduplicates the last 100 inserts that carry a token, in a table and in the targets of its views.
WINDOW = "SETTINGS non_replicated_deduplication_window = 100"


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def code(self) -> str:
        return self.headers.get("X-ClickHouse-Exception-Code", "")


class Server:
    """The front as `clickhouse` starts it, with a data directory and a port of its own."""

    def __init__(self, state: Path, password: str = ""):
        self.state, self.password, self.port = state, password, free_port()
        self.process = None

    def start(self) -> "Server":
        self.process = run_script(self.state, self.port, self.password)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                if self.ping() == b"Ok.\n":
                    return self
            except OSError:
                pass
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < deadline, "the front does not answer"
            time.sleep(0.05)

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(sign)
        status = self.process.wait(timeout=20)
        self.process.stderr.close()
        return status

    def ping(self) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        connection.request("GET", "/ping")
        return connection.getresponse().read()

    def request(self, body: bytes | str = b"", headers: dict | None = None, chunked: bool = False, **parameters) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        if isinstance(body, str):
            body = body.encode()
        if chunked:
            body = iter([body[start : start + 4096] for start in range(0, len(body), 4096)])
        connection.request("POST", "/?" + urllib.parse.urlencode(parameters), body, headers or {}, encode_chunked=chunked)
        response = connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
        connection.close()
        return answer

    def run(self, sql: str | bytes, **parameters) -> str:
        answer = self.request(sql, **parameters)
        assert answer.status == 200, answer.text
        return answer.text

    def insert(self, table: str, rows: bytes, **parameters) -> Answer:
        return self.request(rows, query=f"INSERT INTO {table} FORMAT RowBinary", **parameters)

    def count(self, table: str) -> int:
        return int(self.run(f"SELECT count() FROM {table}"))


def run_script(state: Path, port: int, password: str = "") -> subprocess.Popen:
    environment = {**os.environ, "STATE_DIR": str(state), "CLICKHOUSE_PORT": str(port), "CLICKHOUSE_PASSWORD": password,
                   "VENV_DIR": sys.prefix}
    return subprocess.Popen([HERE / "clickhouse"], env=environment, stderr=subprocess.PIPE, text=True)


def free_port() -> int:
    while True:
        # Below the ephemeral ports, which the system could give to another process before this one binds it.
        port = random.randrange(10_000, 32_000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def rows_of(numbers) -> bytes:
    return b"".join(struct.pack("<Q", number) for number in numbers)


def summary_of(answer: Answer) -> dict:
    return json.loads(answer.headers["X-ClickHouse-Summary"])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("state")).start()
    yield running
    running.stop()


@pytest.fixture
def table(server, request):
    """An empty table (n UInt64) with the name of its test."""
    name = request.node.name.translate(str.maketrans("[]- ", "____"))
    server.run(f"CREATE TABLE {name} (n UInt64) ENGINE = MergeTree ORDER BY n {WINDOW}")
    yield name
    server.run(f"DROP TABLE {name}")


# --- Statements and formats ---

def test_ping(server):
    assert server.ping() == b"Ok.\n"


def test_ddl(server):
    server.run("CREATE DATABASE ddl")
    server.run("CREATE TABLE ddl.t (n UInt64, s String DEFAULT 'x') ENGINE = MergeTree ORDER BY n")
    server.run("ALTER TABLE ddl.t ADD COLUMN m UInt8")
    assert server.run("DESCRIBE TABLE ddl.t").splitlines() == [
        "n\tUInt64\t\t\t\t\t", "s\tString\tDEFAULT\t\\'x\\'\t\t\t", "m\tUInt8\t\t\t\t\t"]
    server.run("DROP DATABASE ddl")
    assert server.request("SELECT * FROM ddl.t").code == "81"


@pytest.mark.parametrize("output_format, expected", [
    ("TabSeparated", b"1\ta\\tb\n"),
    ("RowBinaryWithNamesAndTypes", b"\x02\x01n\x01s\x05UInt8\x06String\x01\x03a\tb"),
])
def test_format(server, output_format, expected):
    sql = "SELECT toUInt8(1) AS n, 'a\\tb' AS s"
    assert server.request(f"{sql} FORMAT {output_format}").body == expected
    assert server.request(sql, default_format=output_format).body == expected


def test_native_for_clients_of_the_binary_protocol(server):
    """clickhouse-go sends this parameter, and expects a head before each block and a byte before each column."""
    sql = "SELECT * FROM values('n UInt32, s String, m Nullable(UInt8)', (7, 'ab', 3), (8, '', NULL))"
    n, s, m = b"\x07\0\0\0\x08\0\0\0", b"\x02ab\x00", b"\x00\x01\x03\x00"
    plain = b"\x03\x02\x01n\x06UInt32" + n + b"\x01s\x06String" + s + b"\x01m\x0fNullable(UInt8)" + m
    head = b"\x01\x00\x02\xff\xff\xff\xff\x00"
    expected = head + b"\x03\x02\x01n\x06UInt32\0" + n + b"\x01s\x06String\0" + s + b"\x01m\x0fNullable(UInt8)\0" + m
    assert server.request(sql, default_format="Native").body == plain
    assert server.request(sql, default_format="Native", client_protocol_version=54460).body == expected
    assert server.request("SELECT [1]", default_format="Native", client_protocol_version=54460).code == "48"


def test_native_insert(server, table):
    """Sends a block with the names and types of its columns, without a list of columns in the statement."""
    block = b"\x01\x03\x01n\x06UInt64" + rows_of([1, 2, 3])
    statement = f"INSERT INTO {table} FORMAT Native"
    assert server.request(block, query=statement, default_format="Native", chunked=True).status == 200
    assert server.run(f"SELECT groupArray(n) FROM {table}") == "[1,2,3]\n"
    assert server.request(block[:-1], query=statement).status != 200
    assert server.count(table) == 3


def test_json(server):
    answer = server.request("SELECT 1 AS n, 'ä' AS s FORMAT JSON")
    assert answer.headers["Content-Type"].startswith("application/json")
    document = json.loads(answer.body)
    assert (document["data"], document["rows"]) == ([{"n": 1, "s": "ä"}], 1)


def test_parameters_in_url(server):
    assert server.run("SELECT {n:UInt8} + 1, {s:String}", param_n="41", param_s="a\\tb") == "42\ta\\tb\n"


def test_parameters_in_form(server):
    """The Rust client sends a statement with parameters as a form."""
    fields = {"query": "SELECT {n:UInt8} + 1, {s:String}, 'ö\n\n--'", "param_n": "41", "param_s": ""}
    body = "".join(f'--x-y\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
                   for name, value in fields.items()) + "--x-y--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=x-y"}
    answer = server.request(body, kind)
    assert (answer.status, answer.text) == (200, "42\t\tö\\n\\n--\n")
    assert server.request(body[:-12], kind).code == "36"


# --- Inserts ---

def test_insert_chunked(server, table):
    answer = server.insert(table, rows_of(range(5000)), chunked=True)
    assert answer.status == 200
    assert summary_of(answer)["written_rows"] == "5000"
    assert server.run(f"SELECT count(), sum(n) FROM {table}") == f"5000\t{sum(range(5000))}\n"


def test_insert_with_statement_in_body(server, table):
    server.run(f"INSERT INTO {table} VALUES (1), (2)")
    server.run(f"INSERT INTO {table} (n) FORMAT JSONEachRow {{\"n\": 3}}")
    server.run(f"INSERT INTO {table} SELECT 4")
    server.run(f"INSERT INTO {table} (n) SETTINGS input_format_skip_unknown_fields = 1 FORMAT JSONEachRow {{\"n\": 5, \"m\": 6}}")
    # Data that looks like SQL.
    server.run(f"INSERT INTO {table} FORMAT RowBinary\n".encode() + b"; FORMAT")
    assert server.run(f"SELECT groupArray(n) FROM (SELECT * FROM {table} ORDER BY n)") == \
        f"[1,2,3,4,5,{int.from_bytes(b'; FORMAT', 'little')}]\n"


@pytest.mark.parametrize("input_format, rows", [
    ("Values", "(1, 'a;'), (1 + 1, {s:String})"),
    ("JSONEachRow", '{"n": 1, "s": "a;"}\n{"n": 2, "s": "b\\n"}'),
    ("CSV", '1,a;\n2,"b\n"\n'),
    ("CSVWithNames", '"s","n"\na;,1\n"b\n",2\n'),
    ("TabSeparated", "1\ta;\n2\tb\\n\n"),
    ("RowBinary", b"\x01\0\0\0\x02a;\x02\0\0\0\x02b\n"),
    ("Native", b"\x02\x02\x01n\x06UInt32\x01\0\0\0\x02\0\0\0\x01s\x06String\x02a;\x02b\n"),
])
def test_insert_format(server, input_format, rows):
    server.run("CREATE TABLE formats (n UInt32, s String) ENGINE = MergeTree ORDER BY n")
    statement = f"INSERT INTO formats (n, s) FORMAT {input_format}"
    rows = rows if isinstance(rows, bytes) else rows.encode()
    answers = [server.request(rows, query=statement, param_s="b\\n"),
               server.request(statement.encode() + b"\n" + rows, param_s="b\\n")]
    stored = server.run("SELECT groupArray((n, s)) FROM (SELECT * FROM formats ORDER BY n)")
    server.run("DROP TABLE formats")
    for answer in answers:
        assert (answer.status, summary_of(answer)["written_rows"]) == (200, "2"), answer.text
    assert stored == "[(1,'a;'),(1,'a;'),(2,'b\\n'),(2,'b\\n')]\n"


def test_insert_compressed(server, table):
    rows = rows_of(range(5000))
    body = encode_native_blocks(rows[:20000]) + encode_native_blocks(rows[20000:])
    assert len(body) < len(rows)
    assert server.insert(table, body, decompress=1, chunked=True).status == 200
    assert server.run(f"SELECT count(), sum(n) FROM {table}") == f"5000\t{sum(range(5000))}\n"


@pytest.mark.parametrize("encoding, encode", [("lz4", lz4.frame.compress), ("gzip", gzip.compress)])
def test_insert_with_content_encoding(server, table, encoding, encode):
    body, headers = encode(rows_of(range(1000))), {"Content-Encoding": encoding}
    assert server.insert(table, body, headers=headers).status == 200
    assert server.count(table) == 1000
    assert server.insert(table, body[:-5], headers=headers).code == "33"
    assert server.count(table) == 1000


@pytest.mark.parametrize("damage, code", [
    (lambda body: body[:100] + bytes([body[100] ^ 1]) + body[101:], "40"),
    (lambda body: body[:-1], "33"),
    (lambda body: body + body[:20], "33"),
], ids=["altered", "truncated", "second_block_cut"])
def test_damaged_compressed_insert(server, table, damage, code):
    body = encode_native_blocks(rows_of(range(5000)))
    answer = server.insert(table, damage(body), decompress=1)
    assert (answer.status != 200, answer.code) == (True, code)
    assert server.count(table) == 0
    assert server.insert(table, body, decompress=1).status == 200


@pytest.mark.parametrize("rows", [rows_of(range(5000))[:-3], b"\x01"], ids=["many_rows", "one_byte"])
def test_cut_rows(server, table, rows):
    answer = server.insert(table, rows)
    assert (answer.status != 200, answer.code) == (True, "33")
    assert server.count(table) == 0


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_cut_connection(server, table, reset):
    """Sends whole rows in whole chunks, without the end of the body."""
    rows = rows_of(range(5000))
    url = "/?" + urllib.parse.urlencode({"query": f"INSERT INTO {table} FORMAT RowBinary"})
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"POST {url} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                           f"{len(rows):x}\r\n".encode() + rows + b"\r\n")
        time.sleep(0.1)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    time.sleep(0.5)
    assert server.count(table) == 0
    assert server.insert(table, rows, chunked=True).status == 200
    assert server.count(table) == 5000


def test_deduplication_token(server, table):
    for token, expected in [("a", 100), ("a", 100), ("b", 200), ("a", 200)]:
        assert server.insert(table, rows_of(range(100)), insert_deduplication_token=token).status == 200
        assert server.count(table) == expected


def test_deduplication_token_reaches_the_view(server, table):
    server.run(f"CREATE TABLE sums (k UInt8, n UInt64) ENGINE = SummingMergeTree ORDER BY k {WINDOW}")
    server.run(f"CREATE MATERIALIZED VIEW sums_mv TO sums AS SELECT toUInt8(0) AS k, n FROM {table}")
    settings = {"insert_deduplication_token": "a", "deduplicate_blocks_in_dependent_materialized_views": 1}
    for token, expected in [("a", 6), ("a", 6), ("b", 12)]:
        assert server.insert(table, rows_of([1, 2, 3]), **{**settings, "insert_deduplication_token": token}).status == 200
        assert server.run("SELECT sum(n) FROM sums") == f"{expected}\n"
    server.run("DROP TABLE sums_mv")
    server.run("DROP TABLE sums")


@pytest.fixture
def table_with_view(server, table):
    """A table with a view, like positions. With a view, the engine's streaming insert would not even report the table's own error."""
    server.run(f"CREATE TABLE target (n UInt64) ENGINE = MergeTree ORDER BY tuple() {WINDOW}")
    server.run(f"CREATE MATERIALIZED VIEW target_mv TO target AS SELECT n FROM {table}")
    yield table
    server.run("DROP TABLE target_mv")
    server.run("DROP TABLE target")


def insert_once(server, table, number):
    """Inserts a row with a token: it is stored once in the table and once in the view's target, however often this function is called."""
    return server.insert(table, rows_of([number]), insert_deduplication_token=str(number),
                         deduplicate_blocks_in_dependent_materialized_views=1)


def numbers_in(server, table):
    return json.loads(server.run(f"SELECT groupArray(n) FROM (SELECT n FROM {table} ORDER BY n)"))


REFUSE_PARTS = "ALTER TABLE {} MODIFY SETTING parts_to_delay_insert = 1, parts_to_throw_insert = 1"
ACCEPT_PARTS = "ALTER TABLE {} RESET SETTING parts_to_delay_insert, parts_to_throw_insert"
REFUSE_ROWS = "ALTER TABLE {} ADD CONSTRAINT above CHECK n > 100"
ACCEPT_ROWS = "ALTER TABLE {} DROP CONSTRAINT above"


@pytest.mark.parametrize("break_it, code, message", [
    (REFUSE_PARTS, "252", "Too many parts (1 with "), (REFUSE_ROWS, "469", "Constraint `above` for table default."),
], ids=["too_many_parts", "constraint"])
def test_failed_insert_is_reported(server, table_with_view, break_it, code, message):
    assert insert_once(server, table_with_view, 1).status == 200
    server.run(break_it.format(table_with_view))
    for rows in [rows_of([2]), rows_of([2] * 5000)]:
        refused = server.insert(table_with_view, rows, chunked=True)
        assert (refused.status, refused.code) == (500, code), refused.text
        assert refused.text.startswith(f"Code: {code}. DB::Exception: {message}")
    assert numbers_in(server, table_with_view) == numbers_in(server, "target") == [1]


def test_deduplicated_insert_differs_from_a_failed_insert(server, table_with_view):
    """As on a server, rows count as written before the token is checked, one for the table and one for the view."""
    duplicates = "SELECT sum(value) FROM system.events WHERE event = 'DuplicatedInsertedBlocks'"
    first = insert_once(server, table_with_view, 1)
    before = int(server.run(duplicates))
    again = insert_once(server, table_with_view, 1)
    for answer in [first, again]:
        assert (answer.status, answer.body, summary_of(answer)["written_rows"]) == (200, b"", "2"), answer.text
    assert int(server.run(duplicates)) > before
    server.run(REFUSE_PARTS.format(table_with_view))
    refused = insert_once(server, table_with_view, 2)
    assert (refused.status, refused.code) == (500, "252"), refused.text
    assert numbers_in(server, table_with_view) == numbers_in(server, "target") == [1]


@pytest.mark.parametrize("break_it, repair, status, code", [
    (REFUSE_ROWS, ACCEPT_ROWS, 500, "469"),
    (REFUSE_PARTS, ACCEPT_PARTS, 500, "252"),
    ("RENAME TABLE {} TO elsewhere", "RENAME TABLE elsewhere TO {}", 404, "60"),
    ("ALTER TABLE {}_mv MODIFY QUERY SELECT toUInt64(n + throwIf(n = 2)) AS n FROM {table}",
     "ALTER TABLE {}_mv MODIFY QUERY SELECT n FROM {table}", 500, "395"),
], ids=["constraint", "too_many_parts", "no_target", "query"])
def test_failed_view_is_reported(server, table_with_view, break_it, repair, status, code):
    """As on a server, the rows may or may not be in the table afterwards. A retry with the same token stores them exactly once."""
    good = insert_once(server, table_with_view, 1)
    assert (good.status, summary_of(good)["written_rows"]) == (200, "2")
    server.run(break_it.format("target", table=table_with_view))
    refused = insert_once(server, table_with_view, 2)
    server.run(repair.format("target", table=table_with_view))
    assert (refused.status, refused.code) == (status, code), refused.text
    again = insert_once(server, table_with_view, 2)
    assert (again.status, again.body) == (200, b""), again.text
    assert numbers_in(server, table_with_view) == numbers_in(server, "target") == [1, 2]


def test_error_about_data_that_are_not_utf8(server, table):
    answer = server.request(gzip.compress(b'{"n": 1}'), query=f"INSERT INTO {table} FORMAT JSONEachRow")
    assert (answer.status, answer.code) == (400, "27"), answer.text


def test_error_does_not_mention_the_file_with_the_data(server, table):
    text = server.insert(table, b"\x01").text
    assert text.endswith("(at row 1)\n: While executing BinaryRowInputFormat. (CANNOT_READ_ALL_DATA) "
                         f"(version {server.run('SELECT version()').strip()} (official build))\n"), text


def test_parameters_that_shape_the_answer(server, table):
    settings = {"wait_end_of_query": 1, "send_progress_in_http_headers": 0}
    answer = server.insert(table, rows_of([1, 2]), **settings)
    assert (answer.status, answer.body, summary_of(answer)["written_rows"]) == (200, b"", "2"), answer.text
    assert server.run(f"SELECT count() FROM {table}", **settings) == "2\n"


def test_async_insert(server, table):
    assert server.insert(table, rows_of([1, 2]), async_insert=1, wait_for_async_insert=1).status == 200
    assert server.count(table) == 2


# --- State that must not outlive a request ---

def test_settings_hold_for_one_request(server):
    sql = "SELECT value, changed FROM system.settings WHERE name = 'max_block_size'"
    default = server.run(sql)
    assert server.run(sql, max_block_size="777") == "777\t1\n"
    for _ in range(10):
        assert server.run(sql) == default
    server.run("SET max_block_size = 778")
    assert server.run(sql) == default


def test_database_holds_for_one_request(server):
    server.run("CREATE DATABASE other")
    for parameters, headers, expected in [
        ({"database": "other"}, {}, "other\n"), ({}, {"X-ClickHouse-Database": "other"}, "other\n"), ({}, {}, "default\n"),
    ]:
        assert server.request("SELECT currentDatabase()", headers, **parameters).text == expected
    server.run("USE other")
    assert server.run("SELECT currentDatabase()") == "default\n"
    server.run("DROP DATABASE other")
    assert server.request("SELECT 1", database="other").code == "81"


def test_failed_insert_leaves_nothing(server, table):
    for _ in range(20):
        assert server.insert(table, b"\x01").status != 200
    assert server.run("SELECT 1") == "1\n"


# --- Errors ---

@pytest.mark.parametrize("sql, parameters, code, status", [
    ("SELECT 1", {"no_such_setting": 1}, "115", 404),
    ("SELECT * FROM no_such_table", {}, "60", 404),
    ("INSERT INTO no_such_table FORMAT RowBinary\n1", {}, "60", 404),
    ("SELECT no_such_column FROM system.one", {}, "47", 404),
    ("SELEC 1", {}, "62", 400),
    ("SELECT 1; SELECT 2", {}, "62", 400),
    ("SELECT 1", {"database": "no_such_database"}, "81", 404),
    ("SELECT throwIf(1)", {}, "395", 500),
    ("SELECT sleep(2)", {"max_execution_time": 1}, "159", 408),
])
def test_error(server, sql, parameters, code, status):
    answer = server.request(sql, **parameters)
    assert (answer.code, answer.status) == (code, status), answer.text
    # Clients that see no headers read the number here.
    assert answer.text.startswith(f"Code: {code}. DB::Exception: ")


@pytest.mark.parametrize("sql", ["INSERT INTO {} VALUES (1)", "INSERT INTO {} SELECT 1", "TRUNCATE TABLE {}"],
                         ids=["values", "select", "truncate"])
def test_get_changes_nothing(server, table, sql):
    server.run(f"INSERT INTO {table} VALUES (7)")
    url = f"http://127.0.0.1:{server.port}/?" + urllib.parse.urlencode({"query": sql.format(table)})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url)
    assert refused.value.headers["X-ClickHouse-Exception-Code"] == "164"
    assert server.run(f"SELECT n FROM {table}") == "7\n"


# --- Authentication ---

@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("guarded"), PASSWORD).start()
    yield running
    running.stop()


def headers_of(password):
    return {"X-ClickHouse-User": "default", "X-ClickHouse-Key": password.encode()}, {}


def basic_of(password):
    return {"Authorization": "Basic " + base64.b64encode(f"default:{password}".encode()).decode()}, {}


def url_of(password):
    return {}, {"user": "default", "password": password}


@pytest.mark.parametrize("credentials", [headers_of, basic_of, url_of])
def test_authentication(guarded, credentials):
    for password, status, code in [(PASSWORD, 200, ""), ("wrong", 403, "516"), ("", 403, "516"), (PASSWORD + "x", 403, "516")]:
        headers, parameters = credentials(password)
        answer = guarded.request("SELECT 1", headers, **parameters)
        assert (answer.status, answer.code) == (status, code), (password, answer.text)


@pytest.mark.parametrize("headers, parameters", [
    ({}, {}),
    ({"X-ClickHouse-User": "other", "X-ClickHouse-Key": PASSWORD.encode()}, {}),
    ({"X-ClickHouse-User": "default", "X-ClickHouse-Key": b"\xff"}, {}),
    ({"Authorization": "Basic !"}, {}),
    ({"Authorization": "Bearer x"}, {"user": "default", "password": PASSWORD}),
])
def test_no_authentication(guarded, headers, parameters):
    answer = guarded.request("SELECT 1", headers, **parameters)
    assert (answer.status, answer.code) == (403, "516")
    assert PASSWORD not in answer.text
    assert guarded.ping() == b"Ok.\n"


# --- Compressed responses ---

def test_native_compressed_response(server):
    sql = "SELECT number FROM numbers(300000) FORMAT RowBinary"
    answer = server.request(sql, compress=1)
    assert decode_native_blocks(answer.body, 1 << 30) == rows_of(range(300000))
    assert len(answer.body) < 300000 * 8
    assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize("encoding, decode", [("lz4", lz4.frame.decompress), ("gzip", gzip.decompress)])
def test_negotiated_response(server, encoding, decode):
    """The Rust client sends only Accept-Encoding: lz4, and decodes the body by Content-Encoding."""
    sql = "SELECT number FROM numbers(1000) FORMAT RowBinary"
    answer = server.request(sql, {"Accept-Encoding": encoding})
    assert answer.headers["Content-Encoding"] == encoding
    assert decode(answer.body) == rows_of(range(1000))
    plain = server.request(sql, {"Accept-Encoding": encoding}, enable_http_compression=0)
    assert "Content-Encoding" not in plain.headers
    assert plain.body == rows_of(range(1000))


# --- Many at once ---

def test_concurrent_writers_and_readers(server, table):
    writers, inserts, rows = 3, 15, 2000
    problems, done = [], threading.Event()

    def write(writer):
        for insert in range(inserts):
            first = (writer * inserts + insert) * rows
            answer = server.insert(table, rows_of(range(first, first + rows)), chunked=True)
            if answer.status != 200:
                problems.append(answer.text)

    def read():
        while not done.is_set():
            answer = server.request(f"SELECT count() FROM {table}")
            # An insert is visible completely or not at all.
            if answer.status != 200 or int(answer.text) % rows:
                problems.append(answer.text)

    writing = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    reading = [threading.Thread(target=read) for _ in range(2)]
    for thread in writing + reading:
        thread.start()
    for thread in writing:
        thread.join()
    done.set()
    for thread in reading:
        thread.join()
    total = writers * inserts * rows
    assert problems == []
    assert server.run(f"SELECT count(), uniqExact(n), max(n) FROM {table}") == f"{total}\t{total}\t{total - 1}\n"


def test_ping_and_statements_during_a_slow_statement(server):
    slow = threading.Thread(target=server.run, args=("SELECT sleep(3)",))
    slow.start()
    time.sleep(0.3)
    assert server.ping() == b"Ok.\n"
    assert server.run("SELECT 1") == "1\n"
    assert slow.is_alive()
    slow.join()


# --- Stopping and starting ---

def test_kill_during_an_insert_keeps_acknowledged_rows(tmp_path):
    rows, acknowledged = 5000, []
    server = Server(tmp_path).start()
    server.run("CREATE TABLE t (n UInt64) ENGINE = MergeTree ORDER BY n SETTINGS fsync_after_insert = 1")

    def write():
        try:
            for insert in range(10000):
                if server.insert("t", rows_of(range(insert * rows, (insert + 1) * rows))).status == 200:
                    acknowledged.append(insert)
        except (OSError, http.client.HTTPException):
            pass  # the kill

    writing = threading.Thread(target=write)
    writing.start()
    while len(acknowledged) < 20:
        assert writing.is_alive()
        time.sleep(0.01)
    server.stop(signal.SIGKILL)
    writing.join()

    server.start()
    stored = server.run("SELECT n DIV 5000 AS i, count() FROM t GROUP BY i ORDER BY i").splitlines()
    # Besides the acknowledged inserts, only the interrupted insert may be stored, and only completely.
    assert stored in ([f"{insert}\t{rows}" for insert in acknowledged],
                    [f"{insert}\t{rows}" for insert in range(len(acknowledged) + 1)])
    assert server.stop() == 0


def test_sigterm_lets_a_statement_finish(tmp_path):
    server = Server(tmp_path).start()
    answers = []
    slow = threading.Thread(target=lambda: answers.append(server.run("SELECT sleep(3)")))
    slow.start()
    time.sleep(1.5)
    assert server.stop() == 0
    slow.join()
    assert answers == ["0\n"]


def test_port_in_use(server, tmp_path):
    second = run_script(tmp_path, server.port)
    _, error = second.communicate(timeout=START_SECONDS_MAX)
    assert (second.returncode, error) == (
        1, f"error: port {server.port} is in use; set CLICKHOUSE_PORT to a free one\n")


def test_data_in_use(server):
    second = run_script(server.state, free_port())
    _, error = second.communicate(timeout=START_SECONDS_MAX)
    assert second.returncode == 1
    assert error.splitlines()[-1].startswith(f"error: cannot open the data in {server.state}/clickhouse;")
    assert "Traceback" not in error


# --- A client of ClickHouse's own ---

def test_clickhouse_connect(server):
    client = clickhouse_connect.get_client(host="127.0.0.1", port=server.port)
    client.command("CREATE TABLE connect (n UInt64, s String, t DateTime64(3)) ENGINE = MergeTree ORDER BY n")
    noon = datetime(2026, 1, 2, 12, 0, 0, 125000)
    client.insert("connect", [[number, f"s{number}", noon] for number in range(1000)], column_names=["n", "s", "t"])
    result = client.query("SELECT n, s, toString(t) FROM connect WHERE n >= {first:UInt64} ORDER BY n",
                          parameters={"first": 998})
    assert [row[:2] for row in result.result_rows] == [(998, "s998"), (999, "s999")]
    assert result.result_rows[0][2].endswith(".125")
    client.command("DROP TABLE connect")
    client.close()
