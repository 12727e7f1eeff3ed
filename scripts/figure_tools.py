# SPDX-License-Identifier: Apache-2.0
"""Running the engine, its tool and their peers, for scripts/figures."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time


class NotMeasurable(Exception):
    """This machine cannot give that figure; the text says why."""


def run(command, timeout=180, **options):
    """Output of a command that must succeed."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, **options)
    if result.returncode != 0:
        tail = (result.stderr.strip() or result.stdout.strip()).splitlines()[-3:]
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {result.returncode}: {' | '.join(tail)}")
    return result.stdout


class Lab:
    """A build, two cores and a runtime directory of our own."""

    def __init__(self, build, cores, hugepages):
        self.build = pathlib.Path(build)
        self.server_core, self.client_core = cores
        self.pages = [] if hugepages else ["--no-hugepages"]
        self.directory = tempfile.TemporaryDirectory(prefix="rodeo-figures.")
        self.environment = {**os.environ, "RODEO_RUNTIME_DIR": self.directory.name}
        self.address = "soft:figures"

    def program(self, name):
        path = self.build / name
        if not path.exists():
            raise NotMeasurable(f"{path} was not built")
        return path

    @contextlib.contextmanager
    def engine(self, *flags, environment=None):
        """A rodeod on the server's core, stopped at the end."""
        log_path = pathlib.Path(self.directory.name) / "rodeod.log"
        with open(log_path, "w+", encoding="utf-8") as log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", self.program("apps/rodeod"), "--poll-cores", str(self.server_core),
                 "--listen", self.address, *self.pages, *map(str, flags)],
                stdout=log, stderr=subprocess.STDOUT, env=environment or self.environment)
        try:
            wait_for(lambda: f"ready: {self.address}" in log_path.read_text() or process.poll() is not None, 20)
            if process.poll() is not None:
                raise RuntimeError(f"rodeod did not start: {log_path.read_text().strip()[-300:]}")
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.returncode != 0:
            raise RuntimeError(f"rodeod ended with {process.returncode}: {log_path.read_text().strip()[-300:]}")

    def bench_command(self, *flags):
        return [self.program("apps/rodeo"), "bench", self.address, "--cores", str(self.client_core), "--json",
                *self.pages, *map(str, flags)]

    def bench(self, *flags):
        """The JSON object of one `rodeo bench`."""
        result = json.loads(run(self.bench_command(*flags), env=self.environment))
        if result["errors"]:
            raise RuntimeError(f"rodeo bench counted {result['errors']} errors")
        return result

    def pinned(self, core, *command):
        return ["taskset", "-c", str(core), *map(str, command)]

    def ucx(self, test, iterations):
        """The words of the last line that ucx_perftest prints: two processes, posix shared memory, 96 bytes."""
        environment = {**os.environ, "UCX_TLS": "posix", "UCX_WARN_UNUSED_ENV_VARS": "n"}
        port = free_port()
        try:
            server = subprocess.Popen(self.pinned(self.server_core, "ucx_perftest", "-p", port), env=environment,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except FileNotFoundError as missing:
            raise NotMeasurable(f"{missing.filename} is not installed; scripts/packages figures") from missing
        try:
            wait_for(lambda: is_listening(port) or server.poll() is not None, 10)
            output = run(self.pinned(self.client_core, "ucx_perftest", "localhost", "-p", port, "-t", test, "-s", "96",
                                     "-n", iterations, "-w", "100000", "-f"), env=environment)
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(3)
            server.kill()
            server.wait()
        # iterations, overhead or latency (50 %, average, overall), MB/s (average, overall), messages/s (same)
        words = output.strip().splitlines()[-1].split()
        if len(words) != 8:
            raise NotMeasurable(f"ucx_perftest {test} printed no result: {output.strip()[-200:]}")
        return [float(word) for word in words]

    def tcp_null(self, seconds):
        return json.loads(run([self.program("bench/tcp_null"), "--seconds", seconds, "--server-core", self.server_core,
                               "--client-core", self.client_core]))

    def memcpy_cold(self, seconds):
        return json.loads(run([self.program("bench/memcpy_cold"), "--seconds", seconds, "--core", self.client_core,
                               "--hugepages", 0 if self.pages else 1]))


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing happened for {seconds} s")
        time.sleep(0.02)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_listening(port):
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in pathlib.Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[1].endswith(wanted) and words[3] == "0A":
                    return True
    return False
