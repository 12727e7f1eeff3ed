# SPDX-License-Identifier: Apache-2.0
"""System calls, allocations and locks of the threads that poll, while calls run at full rate."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time

from figure_tools import NotMeasurable

WINDOW_SECONDS = 1.5
BUSY = 0.1  # share of a core from which on a thread is one that polls; the others sleep


def cpu_seconds(pid):
    """Thread id: CPU seconds so far."""
    seconds = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            seconds[int(task.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def counts(directory, pid):
    """Thread id: (allocations, locks) so far, from the probe's file."""
    data = (pathlib.Path(directory) / str(pid)).read_bytes()
    return {thread: (allocations, locks) for thread, allocations, locks in struct.iter_unpack("=3Q", data) if thread}


def traced(pids):
    """Thread id: system calls within the window."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as trace:
        command = ["strace", "-f", "-qq", "-o", trace.name]
        for pid in pids:
            command += ["-p", str(pid)]
        strace = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(WINDOW_SECONDS)
        if strace.poll() is not None:
            raise NotMeasurable(f"strace may not attach here: {strace.stderr.read().strip()[-120:]}")
        strace.send_signal(signal.SIGINT)
        strace.wait(10)
        calls = {}
        for line in trace:
            # Whoever sleeps in the kernel when strace comes shows an unfinished call that is not of this window.
            match = re.match(r"(\d+) +(?!<\.\.\.|\+\+\+|---|restart_syscall)\w", line)
            if match:
                calls[int(match[1])] = calls.get(int(match[1]), 0) + 1
        return calls


def measure(lab):
    """(process, whether its threads poll): system calls, allocations and locks within the window."""
    if shutil.which("strace") is None:
        raise NotMeasurable("strace is not installed; scripts/packages figures")
    probe = lab.program("bench/steady_state_probe.so").resolve()
    with tempfile.TemporaryDirectory(prefix="rodeo-probe.") as directory:
        environment = {**lab.environment, "LD_PRELOAD": str(probe), "RODEO_PROBE_DIR": directory}
        with lab.engine(environment=environment) as engine:
            bench = subprocess.Popen(list(map(str, lab.bench_command("--proc", "null", "--window", "64", "--seconds", "9"))),
                                     env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                pids = (engine.pid, bench.pid)
                time.sleep(3)
                if bench.poll() is not None:
                    raise RuntimeError(f"rodeo bench ended early: {bench.stderr.read().strip()[-200:]}")
                cpu_before = {pid: cpu_seconds(pid) for pid in pids}
                counts_before = {pid: counts(directory, pid) for pid in pids}
                time.sleep(WINDOW_SECONDS)
                counts_after = {pid: counts(directory, pid) for pid in pids}
                cpu_after = {pid: cpu_seconds(pid) for pid in pids}
                system_calls = traced(pids)
            finally:
                bench.kill()
                bench.wait()
    names = {engine.pid: "rodeod", bench.pid: "rodeo bench"}
    pollers = {thread for pid in pids for thread, seconds in cpu_after[pid].items()
               if seconds - cpu_before[pid].get(thread, 0) > BUSY * WINDOW_SECONDS}
    if len(pollers) < 2:
        raise NotMeasurable("the two sides did not have a core each")
    counted = {}
    for pid in pids:
        for thread, after in counts_after[pid].items() | {thread: (0, 0) for thread in cpu_after[pid]
                                                          if thread not in counts_after[pid]}.items():
            before = counts_before[pid].get(thread, (0, 0))
            group = counted.setdefault((names[pid], thread in pollers), [0, 0, 0])
            group[0] += system_calls.get(thread, 0)
            group[1] += after[0] - before[0]
            group[2] += after[1] - before[1]
    return counted
