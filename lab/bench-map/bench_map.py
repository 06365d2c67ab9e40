"""Measures what the live map costs with very many drivers, and what it costs if each page queries ClickHouse for JSON rows instead.

    make bench ARGS='--what map'          (BENCH_DRIVERS=1000000 BENCH_RATE=20000 BENCH_SECONDS=20 BENCH_VIEWERS=1,100)

SQL generates the last positions: half of the drivers are in twenty towns, half all over the world. Then BENCH_RATE drivers move each
second, with one insert per second, as milepost does it. A viewer is a page on a screen of 1920 × 1080. Every second
viewer shows the world at zoom 3, the others show a town at zoom 12. A viewer reads the stream. After each tick it requests its
tiles again, all in one request, with their versions. "CPU" is the CPU time of the map server's process, user and system,
without the viewers. Prints PAGE_URL first, so that frames can be measured at that URL (HOLD=1 keeps everything running
until Enter), then Markdown.
"""
from __future__ import annotations

import asyncio
import gzip
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import aiohttp

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/answers"))
from conftest import Database, free_port, migrated, running_engine  # noqa: E402

DRIVERS, RATE, SECONDS = (int(os.environ.get(f"BENCH_{name}", default)) for name, default in
                          (("DRIVERS", 1_000_000), ("RATE", 20_000), ("SECONDS", 20)))
VIEWERS = [int(number) for number in os.environ.get("BENCH_VIEWERS", "1,100").split(",")]
BULK = {"max_insert_block_size": "2000000", "min_insert_block_size_rows": "2000000", "max_memory_usage": "0"}
TOWNS = [(25.76, -80.26), (52.52, 13.40), (48.85, 2.35), (40.71, -74.0), (35.68, 139.69), (-23.55, -46.63), (19.43, -99.13),
         (51.51, -0.13), (28.61, 77.21), (-33.87, 151.21), (1.35, 103.82), (30.04, 31.24), (6.52, 3.38), (55.75, 37.62),
         (41.01, 28.98), (-26.2, 28.05), (34.05, -118.24), (-34.6, -58.38), (39.9, 116.4), (59.33, 18.07)]

# Positions of the drivers at second {at}: drivers with odd numbers are in a town, the others anywhere from 60° south to
# 70° north.
ROWS = """INSERT INTO {{db}}.last_positions_state
    (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at)
    WITH number AS driver, intDiv(driver, 2) % 20 + 1 AS town, cityHash64(driver) AS a, cityHash64(driver, 1) AS b, {at} * 1e-4 AS moved,
        driver % 2 = 1 AS in_town,
        if(in_town, {lats}[town] + (a % 2000) / 1e4 - 0.1, a % 1300000 / 1e4 - 60) + moved AS lat,
        if(in_town, {lngs}[town] + (b % 2000) / 1e4 - 0.1, b % 3590000 / 1e4 - 179.5) + moved AS lng
    SELECT concat('driver-', leftPad(toString(driver), 7, '0')),
        now64(3), {at}, toInt32(lat * 1e7), toInt32(lng * 1e7), a % 3000, b % 36000, 100, 50, now64(3)
    FROM numbers({first}, {count})"""
# The query of a page that reads ClickHouse directly, once a second.
PLAIN = "SELECT driver_id, ts, lat, lng, speed, heading FROM {db}.last_positions FORMAT JSONCompactEachRow"


def insert(db: Database, first: int, count: int, at: int) -> None:
    lats, lngs = ([town[n] for town in TOWNS] for n in (0, 1))
    db.ask(ROWS.format(at=at, first=first, count=count, lats=lats, lngs=lngs), **BULK)


def tiles_on_screen(lat: float, lng: float, zoom: int, width=1920, height=1080) -> list[str]:
    n = 2**zoom
    x, y = (lng + 180) / 360 * n, (0.5 - math.asinh(math.tan(math.radians(lat))) / 2 / math.pi) * n
    xs = range(math.floor(x - width / 1024), math.floor(x + width / 1024) + 1)  # tiles of 512 pixels, as MapLibre has them
    ys = range(max(0, math.floor(y - height / 1024)), min(n - 1, math.floor(y + height / 1024)) + 1)
    return [f"{zoom}/{x % n}/{y}" for y in ys for x in xs]


def cpu_s(pid: int) -> float:
    """Returns the CPU time of all threads of a process. schedstat counts nanoseconds; /proc/PID/stat counts ticks of 10
    ms."""
    return sum(int(Path(thread, "schedstat").read_text().split()[0]) for thread in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def resident_mib(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


class Page:
    """One viewer, which sends the same requests as the page (map/page/src/live.ts)."""

    def __init__(self, session: aiohttp.ClientSession, url: str, tiles: list[str]):
        self.session, self.url, self.tiles = session, url, tiles
        self.versions, self.bytes, self.requested, self.received = {}, 0, 0, 0

    async def load_tiles(self) -> None:
        """Requests all tiles on the screen with the versions that the page has, and reads the tiles that changed."""
        tiles = ",".join(f"{tile}:{self.versions[tile]}" if tile in self.versions else tile for tile in self.tiles)
        async with self.session.get(f"{self.url}/api/tiles?of={tiles}") as answer:
            body = await answer.content.read()  # still compressed, because auto_decompress is off
        assert answer.status == 200, (answer.status, body[:200])
        self.bytes += len(body) + 300  # the headers have about 300 bytes
        self.requested += len(self.tiles)
        plain, at = gzip.decompress(body), 0
        while at < len(plain):
            z, x, y, length, version = struct.unpack_from("<4IQ", plain, at)
            self.versions[f"{z}/{x}/{y}"] = version
            self.received += 1
            at += 24 + length

    async def watch(self) -> None:
        """Reads the stream, and loads the tiles after each tick with a new generation."""
        generation = None
        async with self.session.get(self.url + "/api/stream") as stream:
            async for line in stream.content:
                if line.startswith(b"data: "):
                    tick = json.loads(line[6:])
                    if tick["generation"] != generation:
                        generation = tick["generation"]
                        await self.load_tiles()


async def measure_first_view(url: str, tiles: list[str]) -> tuple[float, int]:
    """Returns the duration in seconds and the bytes of a page's first view."""
    async with session() as client:
        page, began = Page(client, url, tiles), time.monotonic()
        async with client.get(url + "/api/config") as answer:
            await answer.read()
        await page.load_tiles()
        return time.monotonic() - began, page.bytes


def session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "gzip"},
                                 connector=aiohttp.TCPConnector(limit=0, limit_per_host=0), timeout=aiohttp.ClientTimeout(total=None))


async def measure_viewers(url: str, pid: int, viewers: int, db: Database) -> dict:
    """Returns CPU per second, bytes per viewer and second, and memory, while this many viewers watch and drivers move."""
    async with session() as client:
        views = [tiles_on_screen(20, 0, 3)] + [tiles_on_screen(*town, 12) for town in TOWNS]
        pages = [Page(client, url, views[0] if n % 2 == 0 else views[1 + n // 2 % len(TOWNS)]) for n in range(viewers)]
        tasks = [asyncio.create_task(page.watch()) for page in pages]
        stop = asyncio.Event()
        mover = asyncio.create_task(asyncio.to_thread(move, db, stop))
        await asyncio.sleep(5)
        before = [(page.bytes, page.requested, page.received) for page in pages]
        cpu, memory, began = cpu_s(pid), [], time.monotonic()
        while time.monotonic() - began < SECONDS:
            await asyncio.sleep(1)
            memory.append(resident_mib(pid))
        seconds = time.monotonic() - began
        cpu = cpu_s(pid) - cpu
        stop.set()
        moved = await mover
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sums = [sum(getattr(page, name) - earlier[n] for page, earlier in zip(pages, before)) for n, name in
                enumerate(("bytes", "requested", "received"))]
        return {"cpu_ms": cpu / seconds * 1000, "bytes": sums[0] / seconds / viewers, "requested": sums[1] / seconds,
                "unchanged": 1 - sums[2] / max(sums[1], 1), "memory": memory, "moved": moved}


# Number of the next second of the drivers' movement. It rises over all measurements.
SECOND = 1


def move(db: Database, stop: asyncio.Event) -> float:
    """Moves the next BENCH_RATE drivers each second. Returns how many drivers moved per second."""
    global SECOND
    began, moved = time.monotonic(), 0
    while not stop.is_set():
        insert(db, SECOND * RATE % max(DRIVERS - RATE, 1), RATE, SECOND)
        SECOND, moved = SECOND + 1, moved + RATE
        time.sleep(max(0.0, began + moved / RATE - time.monotonic()))
    return moved / (time.monotonic() - began)


def measure_plain_query(db: Database, engine) -> tuple[float, int, float]:
    """Returns the duration in seconds, the gzipped bytes and the CPU seconds of the engine for one page's query."""
    cpu, began = cpu_s(engine.pid), time.monotonic()
    request = urllib.request.Request(f"{db.url}/", PLAIN.replace("{db}", db.name).encode(), {"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        size = len(answer.read())
    return time.monotonic() - began, size, cpu_s(engine.pid) - cpu


def start(url: str, database: str, state: Path):
    binary = os.environ.get("MILEPOST_MAP") or REPOSITORY / "target/release/milepost-map"
    port = free_port()
    environment = {**os.environ, "MILEPOST_MAP__CLICKHOUSE__URL": url, "MILEPOST_MAP__CLICKHOUSE__DATABASE": database,
                   "MILEPOST_MAP__HTTP__LISTEN": f"127.0.0.1:{port}"}
    began = time.monotonic()
    process = subprocess.Popen([binary, "run"], env=environment, stderr=open(state / "map.log", "wb"))
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).read()
            return f"http://127.0.0.1:{port}", process, time.monotonic() - began
        except OSError:
            assert process.poll() is None and time.monotonic() - began < 300, (state / "map.log").read_text()
            time.sleep(0.05)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-map-") as folder, running_engine(Path(folder)) as (url, engine):
        db = migrated(url)
        insert(db, 0, DRIVERS, 0)
        page_url, process, started = start(url, db.name, Path(folder))
        try:
            print(f"PAGE_URL={page_url}", flush=True)
            if os.environ.get("HOLD"):
                input()
            world = asyncio.run(measure_first_view(page_url, tiles_on_screen(20, 0, 3)))
            town = asyncio.run(measure_first_view(page_url, tiles_on_screen(*TOWNS[0], 12)))
            lines = [("everybody read, from the start of the server", f"{started:.1f} s", ""),
                     ("first picture, the world", f"{world[0] * 1000:.0f} ms, {world[1] / 1e6:.2f} MB", ""),
                     ("first picture, a town", f"{town[0] * 1000:.0f} ms, {town[1] / 1e6:.2f} MB", "")]
            for viewers in VIEWERS:
                figures = asyncio.run(measure_viewers(page_url, process.pid, viewers, db))
                memory = figures["memory"]
                lines.append((f"{viewers} viewer{'s' if viewers > 1 else ''}, {figures['moved']:,.0f} drivers moving a second: CPU of the map a second",
                              f"{figures['cpu_ms']:.0f} ms", ""))
                lines.append(("… bytes a viewer and second; tiles a second, of them unchanged",
                              f"{figures['bytes'] / 1000:.0f} kB; {figures['requested']:.0f}, {figures['unchanged'] * 100:.0f} %", ""))
                lines.append(("… memory of the map: first, last, most", " ".join(f"{m:.0f}" for m in (memory[0], memory[-1], max(memory))) + " MiB", ""))
            seconds, size, cpu = measure_plain_query(db, engine)
            lines[1] = (*lines[1][:2], f"{seconds * 1000:.0f} ms, {size / 1e6:.1f} MB")
            lines[2] = (*lines[2][:2], "the same")
            for n, viewers in enumerate(VIEWERS):
                lines[3 + 3 * n] = (*lines[3 + 3 * n][:2], f"{viewers} × {cpu * 1000:.0f} ms of ClickHouse")
                lines[4 + 3 * n] = (*lines[4 + 3 * n][:2], f"{size / 1000:.0f} kB")
            print(f"\n{DRIVERS:,} drivers.\n\n| | the map | each page asks ClickHouse for JSON rows |\n|---|--:|--:|")
            for line in lines:
                print("| " + " | ".join(line) + " |")
        finally:
            process.terminate()
            process.wait(timeout=30)


if __name__ == "__main__":
    main()
