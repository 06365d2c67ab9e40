"""Runs statements of ClickHouse's HTTP interface in chDB, the ClickHouse engine as a Python library.

The engine takes the SQL of an INSERT and its data separately, but HTTP sends them as one text: parse_statement finds
where the data begin. The engine reads them from a file in memory. Its streaming insert (send_insert) would accept the
data directly, but it reports success even if the commit or a view failed.
A connection is opened for each statement, so no setting, database or parameter outlives its request.
"""
from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import Optional

import chdb

from clickhouse_codec import DbError

# Caches and threads of the engine, reduced to a laptop's size. implicit_select: chDB, unlike a server, would accept `1 + 1` as a query.
ENGINE_OPTIONS = {
    "max_server_memory_usage": int(os.environ.get("CLICKHOUSE_MEMORY_BYTES_MAX", 2 << 30)),
    "mark_cache_size": 64 << 20,
    "index_mark_cache_size": 16 << 20,
    "primary_index_cache_size": 64 << 20,
    "max_threads": min(4, os.cpu_count() or 1),
    "implicit_select": 0,
}
if os.environ.get("CLICKHOUSE_CONFIG"):
    ENGINE_OPTIONS["config-file"] = os.environ["CLICKHOUSE_CONFIG"]

# --- Statements ---

TOKEN = re.compile(
    rb"""(?P<blank> \s+ | --[^\n]* | \#[\ !][^\n]* | /\*.*?\*/ )
       | (?P<quoted> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`\\]|\\.|``)*` )
       | (?P<word> [A-Za-z_][A-Za-z0-9_]* )
       | (?P<other> . )""",
    re.VERBOSE | re.DOTALL,
)
BEFORE_DATA = re.compile(rb"[ \t\f]*\r?\n?")
ASSIGNMENT = re.compile(rb"\s+[A-Za-z_]\w*\s*=")
OUTPUT_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*$", re.IGNORECASE)
# Text that the engine adds to an error in the data because it reads them from a file. A server does not add this text.
ABOUT_THE_FILE = re.compile(r"\(in file/uri /proc/self/fd/\d+\): |: While executing File: data for INSERT was parsed from file")


@dataclass
class Statement:
    sql: str
    # Set for an INSERT that is followed by its rows as data; `data_start` is then their offset.
    input_format: Optional[str] = None
    data_start: int = 0
    # The statement's SETTINGS clause, which must follow the source of the data.
    settings: str = ""


def parse_statement(text: bytes) -> Statement:
    """Finds where the SQL ends and the data of an INSERT begins: the engine takes the two separately."""
    depth, first, previous, format_start, settings_start = 0, b"", b"", 0, 0

    def with_data(end: int, input_format: str, data_start: int) -> Statement:
        middle = settings_start or end
        return Statement(decode_sql(text[:middle]), input_format, data_start, decode_sql(text[middle:end]))

    for token in TOKEN.finditer(text):
        kind, value, word = token.lastgroup, token.group(), b""
        if kind == "blank":
            continue
        if value in (b"(", b"[", b"{"):
            depth += 1
        elif value in (b")", b"]", b"}"):
            depth -= 1
        elif value == b";":
            if any(rest.lastgroup != "blank" for rest in TOKEN.finditer(text, token.end())):
                raise DbError(62, "SYNTAX_ERROR", "Multi-statements are not allowed")
            text = text[: token.start()]
            break
        elif kind == "word" and depth == 0:
            word = value.upper()
            first = first or word
            if first == b"INSERT" and previous == b"FORMAT":
                data_start = BEFORE_DATA.match(text, token.end()).end()
                return with_data(format_start, value.decode(), data_start)
            if first == b"INSERT" and word == b"VALUES":
                return with_data(token.start(), "Values", token.end())
            if word == b"SETTINGS" and ASSIGNMENT.match(text, token.end()):
                settings_start = token.start()
            if first == b"INSERT" and word in (b"SELECT", b"WITH"):
                first = word  # INSERT ... SELECT has no data
            format_start = token.start()
        previous = word
    if first == b"INSERT":
        return with_data(len(text), "Values", len(text))
    return Statement(decode_sql(text))


def decode_sql(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise DbError(62, "SYNTAX_ERROR", "Statement is not valid UTF-8") from None


def quote(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_name(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def in_statements(assignments: list[str]) -> list[list[str]]:
    """Groups assignments for SET. Long parameters in one statement may exceed max_query_size (256 KiB)."""
    groups: list[list[str]] = []
    for assignment in assignments:
        if not groups or sum(map(len, groups[-1])) + len(assignment) > 64_000:
            groups.append([])
        groups[-1].append(assignment)
    return groups


# --- Engine ---

@dataclass
class Result:
    body: bytes = b""
    format: str = ""
    read_rows: int = 0
    read_bytes: int = 0
    written_rows: int = 0
    written_bytes: int = 0
    result_rows: int = 0
    elapsed_seconds: float = 0.0


class Engine:
    """chDB at one path. A connection is opened for each statement (0.3 ms), so no setting outlives its statement."""

    def __init__(self, path: str):
        options = "&".join(f"{name}={value}" for name, value in ENGINE_OPTIONS.items())
        self.connection_string = f"{path}?{options}"
        # Opening the first connection loads the data, and closing the last connection unloads them.
        self.anchor = chdb.connect(self.connection_string)
        self.version, self.timezone = self.anchor.query("SELECT version(), timezone()", "TSV").bytes().decode().split()

    def run(self, text: bytes, database: str, settings: dict[str, str], output_format: str) -> Result:
        statement = parse_statement(text)
        connection = chdb.connect(self.connection_string)
        try:
            if database:
                connection.query(f"USE {quote_name(database)}")
            for assignments in in_statements([f"{name} = {quote(value)}" for name, value in settings.items()]):
                connection.query("SET " + ", ".join(assignments))
            if statement.input_format:
                return insert(connection, statement, memoryview(text)[statement.data_start :])
            return query(connection, statement.sql, output_format)
        except RuntimeError as error:
            raise engine_error(str(error)) from None
        except UnicodeDecodeError as error:  # the engine's message quotes data that are not UTF-8
            raise engine_error(error.object.decode(errors="replace")) from None
        finally:
            connection.close()

    def close(self):
        self.anchor.close()


def insert(connection, statement: Statement, data: memoryview) -> Result:
    with memory_file(data) as path:
        result = connection.query(f"{statement.sql}\nFROM INFILE {quote(path)} COMPRESSION 'none'\n"
                                f"{statement.settings}\nFORMAT {statement.input_format}")
    return Result(format=statement.input_format, written_rows=result.rows_written(), written_bytes=result.bytes_written(),
                  elapsed_seconds=result.elapsed())


@contextlib.contextmanager
def memory_file(data: memoryview):
    """Yields the path of a file in memory with these bytes, and closes it afterwards."""
    file = os.memfd_create("insert")
    try:
        while data:
            data = data[os.write(file, data) :]
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def query(connection, sql: str, output_format: str) -> Result:
    result = connection.query(sql, output_format)
    named = OUTPUT_FORMAT.search(sql)
    return Result(
        body=result.bytes(), format=named.group(1) if named else output_format,
        read_rows=result.storage_rows_read(), read_bytes=result.storage_bytes_read(), result_rows=result.rows_read(),
        written_rows=result.rows_written(), written_bytes=result.bytes_written(), elapsed_seconds=result.elapsed(),
    )


def engine_error(text: str) -> DbError:
    """Parses the text of an engine's exception into code, name and message. The library may put a prefix before the text."""
    found = re.search(r"Code: (\d+)\. DB::\w*Exception: (.*)", text, re.DOTALL)
    if not found:
        return DbError(1001, "STD_EXCEPTION", text)
    code, message = int(found.group(1)), ABOUT_THE_FILE.sub("", found.group(2))
    message = re.sub(r"^Code: \d+\. DB::\w*Exception: |\s*\(version [^()]*\)", "", message)
    name = re.search(r"\(([A-Z0-9_]+)\)", message[::1].rsplit(". ", 1)[-1])
    message = re.sub(r"[.\s]*(\([A-Z0-9_]+\)[.\s]*)+$", "", message)
    return DbError(code, name.group(1) if name else "UNKNOWN_EXCEPTION", message)
