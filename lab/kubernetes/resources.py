"""What requests and limits come from: memory and CPU of one member at several rates, with ClickHouse there and away.

    python lab/kubernetes/resources.py

Mosquitto, the engine and the fleet run on the same machine. Memory is the highest the process ever had; CPU is its own user and system
time, from the first message that is counted to the last. While ClickHouse is away the spool fills; memory then includes its replay.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from cluster import wait_until
from member import BINARIES, Member
from servers import PASSWORD, Servers

RATES = (2_000, 20_000)
WARM_UP_S = 5


def memory(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def cpu_s(process):
    times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def measure(member, servers, away):
    """MiB at most, millicores for 1,000 messages a second, messages a second that were taken, MiB in the spool at most."""
    milepost, fleet = member.processes
    received = lambda: member.value("milepost_messages_received_total")
    time.sleep(WARM_UP_S)
    if away:
        servers.processes[1].kill()
        servers.processes[1].wait()
    began, cpu, messages, spooled = time.monotonic(), cpu_s(milepost), received(), 0
    while time.monotonic() - began < member.seconds - 2 * WARM_UP_S:
        time.sleep(1)
        spooled = max(spooled, member.value("milepost_spool_bytes"))
    took = time.monotonic() - began
    cpu, messages = cpu_s(milepost) - cpu, received() - messages
    assert fleet.wait(60 + member.seconds) == 0, (member.folder / "loadgen.log").read_text()
    if away:
        servers.restart_clickhouse(PASSWORD)
        wait_until("the spool is empty", lambda: member.value("milepost_spool_batches") == 0, 300)
    return memory(milepost), cpu / messages * 1e6, messages / took, spooled / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", default=60, type=int, help="how long the fleet sends, each time")
    arguments = parser.parse_args()
    print("| one member | memory, at most | CPU for 1,000 messages/s | taken a second | in the spool, at most |")
    print("|---|--:|--:|--:|--:|")
    for away in (False, True):
        for rate in RATES:
            with tempfile.TemporaryDirectory(prefix="milepost-resources-") as name:
                folder = Path(name)
                (folder / "servers").mkdir()
                with Servers(folder / "servers", "mosquitto", BINARIES) as servers:
                    as_a_pod = {"SPOOL__DIR": str(folder / "spool"), "LOG__FORMAT": "json"}
                    with Member(folder, servers, rate, arguments.seconds, **as_a_pod) as member:
                        mib, millicores, taken, spooled = measure(member, servers, away)
            what = f"{rate:,} messages/s" + ", ClickHouse away, then replayed" * away
            print(f"| {what} | {mib:.1f} MiB | {millicores:.1f} millicores | {taken:,.0f} | {spooled:.0f} MiB |", flush=True)


if __name__ == "__main__":
    main()
