#!/usr/bin/env python3
"""A simulated driver: publishes fixes at QoS 1, and loses none while it is offline or killed.

    pip install -r requirements.txt
    MQTT_PASSWORD=... python driver.py --host broker.example --tls --driver d7 --user d7

Every fix goes to a file first. Once an interval the oldest fixes in the file go out as one message: one fix
as an object, several as an array. They leave the file when the broker's PUBACK has come. What a kill leaves
in doubt is sent again; milepost keeps each fix once.
"""
import argparse
import json
import math
import os
import queue
import random
import sqlite3
import time

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

POINTS_PER_MESSAGE = 500       # about 50 kB; milepost takes 10,000 points and 1 MiB
FIXES_KEPT_MAX = 500_000       # when the file is full, the oldest fixes go
SESSION_EXPIRY_SECONDS = 24 * 3600
RETRY_SECONDS = 10             # after a PUBACK that says the broker did not keep the message
NO_MATCHING_SUBSCRIBERS = 0x10  # a success by the standard, but the message is gone


class Buffer:
    """Fixes the broker has not acknowledged, on disk. AUTOINCREMENT gives no seq twice, restarts included."""

    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None)  # each statement is a transaction, synced to disk
        self.db.row_factory = sqlite3.Row
        self.db.execute("CREATE TABLE IF NOT EXISTS fixes (seq INTEGER PRIMARY KEY AUTOINCREMENT,"
                        " ts INTEGER, lat REAL, lng REAL, speed REAL, heading REAL)")

    def add(self, fix):
        added = self.db.execute("INSERT INTO fixes (ts, lat, lng, speed, heading)"
                                " VALUES (:ts, :lat, :lng, :speed, :heading)", fix)
        self.forget(added.lastrowid - FIXES_KEPT_MAX)

    def oldest(self):
        rows = self.db.execute("SELECT * FROM fixes ORDER BY seq LIMIT ?", (POINTS_PER_MESSAGE,))
        # What is unknown is left out.
        return [{name: row[name] for name in row.keys() if row[name] is not None} for row in rows]

    def forget(self, last_seq):
        self.db.execute("DELETE FROM fixes WHERE seq <= ?", (last_seq,))


def simulated_fix():
    """Clockwise on a circle of 1 km at 12.5 m/s. A receiver would give its own time, not the computer's."""
    now = time.time()
    angle = now * 12.5 / 1000
    north, east = math.cos(angle) / 111.32, math.sin(angle) / 111.32
    return {"ts": int(now * 1000), "lat": round(25.7617 + north, 7),
            "lng": round(-80.1918 + east / math.cos(math.radians(25.7617)), 7),
            "speed": 12.5, "heading": round((math.degrees(angle) + 90) % 360, 1)}


def start_client(args, events):
    """Connects in a thread of its own, again and again; what happens there comes out of `events`."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=f"driver-{args.driver}", protocol=mqtt.MQTTv5)
    client.on_connect = lambda _c, _u, _flags, code, _p: events.put(("connect", code))
    client.on_connect_fail = lambda _c, _u: print("no connection yet", flush=True)
    client.on_disconnect = lambda _c, _u, _flags, code, _p: events.put(("disconnect", code))
    client.on_publish = lambda _c, _u, _mid, code, _p: events.put(("puback", code))
    client.reconnect_delay_set(min_delay=random.randint(1, 5), max_delay=60)
    if args.user:
        client.username_pw_set(args.user, os.environ.get("MQTT_PASSWORD"))
    if args.tls:
        client.tls_set(ca_certs=args.ca_file)  # None: the system's authorities
    session = Properties(PacketTypes.CONNECT)
    session.SessionExpiryInterval = SESSION_EXPIRY_SECONDS
    port = args.port or (8883 if args.tls else 1883)
    client.connect_async(args.host, port, keepalive=30, clean_start=False, properties=session)
    client.loop_start()
    return client


def run(args, client, events, buffer):
    topic = f"drivers/{args.driver}/gps"
    connected, in_flight, taken = False, None, 0  # in_flight: the last seq of the message without PUBACK
    send_at = next_tick = time.monotonic()
    while True:
        while (wait := next_tick - time.monotonic()) > 0:
            try:
                event, code = events.get(timeout=wait)
            except queue.Empty:
                break
            if event != "puback":
                connected = event == "connect" and not code.is_failure
                print(f"{event}: {code}", flush=True)
                # After an outage the whole fleet comes back at once: spread it.
                send_at = time.monotonic() + random.uniform(0, args.spread)
            elif code.is_failure or code.value == NO_MATCHING_SUBSCRIBERS:
                print(f"not kept by the broker, up to seq {in_flight}: {code}", flush=True)
                in_flight, send_at = None, time.monotonic() + RETRY_SECONDS
            else:
                buffer.forget(in_flight)
                print(f"acknowledged up to seq {in_flight}", flush=True)
                in_flight = None
        next_tick = max(next_tick + args.interval, time.monotonic())

        if args.count is None or taken < args.count:
            buffer.add(simulated_fix())
            taken += 1
        # One message at a time. If the connection breaks now, paho sends it again on the next one.
        if connected and in_flight is None and time.monotonic() >= send_at:
            fixes = buffer.oldest()
            if fixes:
                in_flight = fixes[-1]["seq"]
                payload = fixes[0] if len(fixes) == 1 else fixes
                client.publish(topic, json.dumps(payload, separators=(",", ":")), qos=1)
            elif taken == args.count:
                return


def main():
    parser = argparse.ArgumentParser(description="Publishes simulated fixes. The password is read from MQTT_PASSWORD.")
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, help="default: 1883, with --tls 8883")
    parser.add_argument("--driver", default="d7", help="the id in the topic: 1-64 of A-Z a-z 0-9 . _ : -")
    parser.add_argument("--user")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--ca-file", help="an authority of your own, as PEM; with --tls")
    parser.add_argument("--buffer", help="file for unsent fixes, one a driver; default: DRIVER.sqlite3")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between fixes")
    parser.add_argument("--spread", type=float, default=30.0, help="wait up to this many seconds after a connect")
    parser.add_argument("--count", type=int, help="take so many fixes, end when all are acknowledged; default: no end")
    args = parser.parse_args()

    buffer, events = Buffer(args.buffer or f"{args.driver}.sqlite3"), queue.Queue()
    client = start_client(args, events)
    try:
        run(args, client, events, buffer)
    except KeyboardInterrupt:
        pass
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main()
