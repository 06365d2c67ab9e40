"""Inserts the day of docs/analysts.md into a migrated database, and refreshes the roll-up.

    python load_day.py [http://localhost:8123 [fleet]]
"""
import sys

from conftest import Database, fill_day


def main(url: str = "http://localhost:8123", name: str = "fleet") -> None:
    fill_day(Database(url, name))
    print(f"five drivers, 1 June 2026, are in {name} on {url}")


main(*sys.argv[1:])
