#!/usr/bin/env python3
"""Tries a wrong password on a broker again and again, for --seconds.

Exits with 1 if the broker accepted it once, with 2 if it never refused it, else with 0.

Run it while the broker starts and stops: wrong_passwords.py --port 1883 --seconds 60
"""

import argparse
import collections
import socket
import struct
import sys
import time

PAUSE_S = 0.005  # between two attempts
TIMEOUT_S = 2


def mqtt_string(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded


def connect_packet() -> bytes:
    """Returns an MQTT 5 CONNECT with Clean Start, for the user d7 with a password that no user has."""
    head = mqtt_string("MQTT") + bytes([5, 0b1100_0010]) + struct.pack(">H", 60) + b"\x00"
    body = head + mqtt_string("wrong-passwords") + mqtt_string("d7") + mqtt_string("wrong")
    return bytes([0x10, len(body)]) + body


def try_once(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as connection:
            connection.sendall(connect_packet())
            answer = connection.recv(4)
    except OSError:
        return "unreachable"
    if len(answer) < 4 or answer[0] != 0x20:
        return "closed"
    return "accepted" if answer[3] == 0 else f"refused {answer[3]:#04x}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    began = time.monotonic()
    answers: collections.Counter[str] = collections.Counter()
    last = None
    while time.monotonic() - began < arguments.seconds:
        answer = try_once(arguments.host, arguments.port)
        answers[answer] += 1
        if answer != last:
            print(f"{time.monotonic() - began:7.3f} s: {answer}", flush=True)
        last = answer
        time.sleep(PAUSE_S)
    print(dict(answers))
    if answers["accepted"]:
        return 1
    return 0 if any(answer.startswith("refused") for answer in answers) else 2


if __name__ == "__main__":
    sys.exit(main())
