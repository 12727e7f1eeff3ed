#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the built programs as a user would: blackbox_test.py RODEOD RODEO [CASE...]

Every case has a runtime folder of its own and leaves no process behind. Ends with a line "N passed, N failed".
"""

import contextlib
import ctypes
import hashlib
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

RODEOD, RODEO = (os.path.abspath(path) for path in sys.argv[1:3])


def instrumented(program):
    """Whether a sanitizer slows the program down: the promises about time are made without one."""
    with open(program, "rb") as file:
        return re.search(rb"__(asan|tsan)_init", file.read()) is not None


SLOWER = 10 if instrumented(RODEOD) else 1
CORES = sorted(os.sched_getaffinity(0))
POLL_CORE, BENCH_CORE = str(CORES[0]), str(CORES[-1])
PATIENCE = 60.0  # for what must come, however slow the machine; what has a limit is timed apart

CASES = []
LIBC = ctypes.CDLL(None)


def die_with_parent():
    """In the child: whatever ends this script, no engine is left polling a core."""
    pr_set_pdeathsig = 1
    LIBC.prctl(pr_set_pdeathsig, signal.SIGKILL)


def case(function):
    CASES.append(function)
    return function


def proves(*requirements):
    """Names the requirements of protocol.md that a case proves, for scripts/conformance."""
    def named(function):
        function.proves = requirements
        return function
    return named


class Stage:
    """A runtime folder, and the processes started in it."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = dict(os.environ, RODEO_RUNTIME_DIR=os.path.join(folder, "run"), LC_ALL="C")
        os.mkdir(self.environment["RODEO_RUNTIME_DIR"])
        self.processes = []

    def start(self, *command, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                   "preexec_fn": die_with_parent, **options}
        process = subprocess.Popen(command, env=self.environment, **options)
        self.processes.append(process)
        return process

    def rodeod(self, *arguments, name="test", prefix=(), pages=("--no-hugepages",)):
        """Starts an engine and waits until it says that it is ready."""
        process = self.start(*prefix, RODEOD, *pages, "--poll-cores", POLL_CORE, "--listen", f"soft:{name}",
                             *arguments, stderr=open(os.path.join(self.folder, "rodeod.log"), "a"))
        line = process.stdout.readline()
        while line and not line.startswith("ready: "):
            line = process.stdout.readline()
        assert line == f"ready: soft:{name}\n", f"rodeod did not start: {line!r} {self.log()}"
        return process

    def log(self):
        with open(os.path.join(self.folder, "rodeod.log")) as log:
            return log.read()

    def run(self, *command, **options):
        options = {"capture_output": True, "text": True, "timeout": PATIENCE, **options}
        return subprocess.run(command, env=self.environment, **options)

    def rodeo(self, *arguments, **options):
        return self.run(RODEO, *arguments, **options)

    def bench(self, *arguments):
        """A short bench that must go well; its JSON."""
        done = self.rodeo("bench", "soft:test", "--no-hugepages", "--cores", BENCH_CORE, "--json",
                          *arguments, *(() if "--warmup" in arguments else ("--warmup", "0.05")))
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def file(self, name, size):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as out:
            out.write(os.urandom(min(size, 1 << 20)) * (size // (1 << 20) + 1))
            out.truncate(size)
        return path

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


def stop(process, number=signal.SIGTERM):
    """Stops an engine; its exit status, its last output, and the seconds that it took."""
    before = time.monotonic()
    process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, output, time.monotonic() - before


def one_line(text):
    return text.count("\n") == 1 and text.endswith("\n") and "EAL" not in text


def assert_complaint(done, status, *words):
    assert done.returncode == status, (done.args, done.returncode, done.stderr)
    assert one_line(done.stderr), (done.args, done.stderr)
    for word in words:
        assert word in done.stderr, (done.args, word, done.stderr)


@case
def ping_prints_a_line_for_each_call_and_a_summary(stage):
    stage.rodeod()
    done = stage.rodeo("ping", "soft:test", "--count", "3", "--interval", "1")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^reply from soft:test: seq=\d+ time=[\d.]+ \w+$", done.stdout, re.M)) == 3, done.stdout
    assert "3 calls, 3 replies, 0% loss" in done.stdout
    assert re.search(r"min/avg/max/mdev = [\d.]+/[\d.]+/[\d.]+/[\d.]+ us", done.stdout), done.stdout


@case
@proves("R8166-3.5-3")
def ping_carries_octets_inline_and_long(stage):
    stage.rodeod()
    for size in ("1", "1000", "5000", "64K", "1M"):
        done = stage.rodeo("ping", "soft:test", "--count", "2", "--interval", "0", "--size", size)
        assert done.returncode == 0 and "2 replies" in done.stdout, (size, done.stdout, done.stderr)


@case
def ping_prints_its_summary_on_ctrl_c(stage):
    stage.rodeod()
    ping = stage.start(RODEO, "ping", "soft:test", "--interval", "20")
    ping.stdout.readline()
    ping.stdout.readline()
    ping.send_signal(signal.SIGINT)
    output, _ = ping.communicate(timeout=PATIENCE)
    assert ping.returncode == 0 and "0% loss" in output, output


@case
def ping_reports_loss_when_the_engine_goes_and_recovers_when_it_is_back(stage):
    engine = stage.rodeod()
    ping = stage.start(RODEO, "ping", "soft:test", "--interval", "50", "--count", "100000")
    assert ping.stdout.readline().startswith("PING")
    assert ping.stdout.readline().startswith("reply")
    engine.kill()
    engine.communicate()
    line = ping.stdout.readline()
    while line.startswith("reply"):
        line = ping.stdout.readline()
    assert line.startswith("no reply"), line
    stage.rodeod()
    while line.startswith("no reply"):
        line = ping.stdout.readline()
    assert line.startswith("reply"), line


@case
def bench_reports_everything_in_one_json_object(stage):
    stage.rodeod()
    report = stage.bench("--seconds", "0.3")
    for key in ("calls_per_second", "bytes_per_second", "calls", "seconds", "errors", "latency_ns", "verify", "window",
                "cores", "connections", "mix", "size", "warmup", "credits", "inline_send", "inline_receive",
                "hugepages", "count_asked", "seconds_asked", "address", "version"):
        assert key in report, key
    latency = report["latency_ns"]
    order = [latency[key] for key in ("p50", "p90", "p99", "p999", "p9999", "max")]
    assert order == sorted(order) and order[0] > 0, latency
    assert report["errors"] == 0 and report["calls"] > 0 and report["verify"] is True
    assert abs(report["calls_per_second"] * report["seconds"] / report["calls"] - 1) < 0.01
    assert 0.25 < report["seconds"] < 5


@case
def bench_verifies_every_procedure(stage):
    stage.rodeod()
    for proc in ("null", "echo", "checksum", "fill", "mirror", "delay", "long-call", "long-reply"):
        for size in ("64", "4096", "100001", "1M"):
            report = stage.bench("--proc", proc, "--size", size, "--count", "50", "--window", "8", "--warmup", "0")
            assert report["errors"] == 0 and report["calls"] == 50, (proc, size, report)
            if proc in ("null", "delay"):
                break


@case
def bench_lets_itself_be_called_back(stage):
    engine = stage.rodeod("--reverse-credits", "3")
    report = stage.bench("--mix", "callback:5=1,null=1", "--count", "400", "--window", "16", "--warmup", "0")
    assert report["errors"] == 0 and report["calls"] == 400, report
    engine.send_signal(signal.SIGUSR1)
    line = engine.stdout.readline()
    while "reverse_replies" not in line:
        line = engine.stdout.readline()
        assert line, "no reverse_replies"
    assert int(line.split()[0]) >= 1000, line
    status, output, _ = stop(engine)
    assert status == 0, (output, stage.log())
    stage.rodeod()
    refused = stage.rodeo("bench", "soft:test", "--no-hugepages", "--cores", BENCH_CORE, "--proc", "callback",
                          "--count", "10", "--warmup", "0")
    assert refused.returncode == 1, refused.stdout


@case
def bench_sends_mixes_own_and_recorded(stage):
    stage.rodeod()
    for mix in ("null=80,fill:64K=10,checksum:5001=5,echo:100=5", "kernel-nfs3", "kernel-nfs42"):
        report = stage.bench("--mix", mix, "--seconds", "0.2", "--window", "16")
        assert report["errors"] == 0 and report["calls"] > 0, report


@case
def bench_counts_exactly(stage):
    stage.rodeod()
    report = stage.bench("--count", "12345", "--window", "7", "--connections", "3")
    assert report["calls"] == 12345, report


@case
def bench_uses_more_connections_than_calls(stage):
    stage.rodeod("--connections", "100", "--credits", "8")
    report = stage.bench("--connections", "100", "--window", "16", "--seconds", "0.2")
    assert report["errors"] == 0 and report["calls"] > 0, report


@case
def bench_prints_a_table_for_people(stage):
    stage.rodeod()
    done = stage.rodeo("bench", "soft:test", "--no-hugepages", "--cores", BENCH_CORE, "--count", "100", "--warmup", "0")
    assert done.returncode == 0, done.stderr
    for word in ("calls/s", "p50", "p99.99", "max", "errors      0"):
        assert word in done.stdout, (word, done.stdout)


@case
def bench_ends_within_two_seconds_when_the_engine_is_killed(stage):
    engine = stage.rodeod()
    bench = stage.start(RODEO, "bench", "soft:test", "--no-hugepages", "--cores", BENCH_CORE, "--seconds", "60")
    time.sleep(1.0)
    assert bench.poll() is None
    before = time.monotonic()
    engine.kill()
    _, complaint = bench.communicate(timeout=PATIENCE)
    took = time.monotonic() - before
    assert bench.returncode == 1, bench.returncode
    assert one_line(complaint) and "soft:test" in complaint, complaint
    assert took < 2, took
    stage.rodeod()  # the name is free at once
    assert stage.rodeo("ping", "soft:test", "--count", "1").returncode == 0


@case
def bench_ends_when_the_engine_stops_answering(stage):
    engine = stage.rodeod()
    bench = stage.start(RODEO, "bench", "soft:test", "--no-hugepages", "--cores", BENCH_CORE, "--seconds", "60",
                        "--stall", "1")
    time.sleep(1.0)
    engine.send_signal(signal.SIGSTOP)
    _, complaint = bench.communicate(timeout=20)
    engine.send_signal(signal.SIGCONT)
    assert bench.returncode == 1 and one_line(complaint), (bench.returncode, complaint)


@case
def engine_goes_on_serving_when_a_bench_is_killed(stage):
    engine = stage.rodeod()
    for _ in range(3):
        bench = stage.start(RODEO, "bench", "soft:test", "--no-hugepages", "--cores", BENCH_CORE, "--seconds", "60",
                            "--mix", "null=1,mirror:64K=1,long-call:64K=1,long-reply:64K=1")
        time.sleep(0.7)
        assert bench.poll() is None, bench.communicate()
        bench.kill()
        bench.communicate()
        done = stage.rodeo("ping", "soft:test", "--count", "1")
        assert done.returncode == 0, done.stdout + done.stderr
    assert stage.bench("--proc", "mirror", "--size", "64K", "--count", "200")["errors"] == 0
    status, output, _ = stop(engine)
    assert status == 0 and "stopped" in output, (status, output, stage.log())


def sums_like_sha256sum(stage, names, *options, **run):
    ours = stage.rodeo("sum", "--engine", "soft:test", "--no-hugepages", *options, *names, **run)
    theirs = stage.run("sha256sum", *names, **run)
    assert ours.stdout == theirs.stdout, (ours.stdout, theirs.stdout, ours.stderr)
    return ours, theirs


@case
def sum_prints_what_sha256sum_prints(stage):
    stage.rodeod()
    sizes = (0, 1, 3, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 9_999_999, 48 << 20)
    names = [stage.file(f"size-{size}", size) for size in sizes]
    ours, _ = sums_like_sha256sum(stage, names)
    assert ours.returncode == 0 and ours.stderr == "", ours.stderr
    ours, _ = sums_like_sha256sum(stage, names, "--block", "8K", "--in-flight", "3")
    assert ours.returncode == 0


@case
def sum_back_compares_what_returns(stage):
    stage.rodeod()
    names = [stage.file(f"size-{size}", size) for size in (0, 1, 70_001, 5 << 20)]
    ours, _ = sums_like_sha256sum(stage, names, "--back")
    assert ours.returncode == 0 and ours.stderr == "", ours.stderr


@case
def sum_hashes_on_worker_cores_too(stage):
    stage.rodeod("--worker-cores", BENCH_CORE)
    ours, _ = sums_like_sha256sum(stage, [stage.file("large", 9_999_999)], "--back")
    assert ours.returncode == 0, ours.stderr


@case
def sum_reads_standard_input(stage):
    stage.rodeod()
    data = os.urandom(3_000_000)
    for names in ([], ["-"]):
        done = stage.rodeo("sum", "--engine", "soft:test", *names, input=data, text=False)
        assert done.stdout.decode() == hashlib.sha256(data).hexdigest() + "  -\n", (done.stdout, done.stderr)


@case
def sum_escapes_odd_names_and_goes_on_after_files_it_cannot_read(stage):
    stage.rodeod()
    names = [stage.file(name, 10) for name in ("plain", "new\nline", "back\\slash", "re\rturn", " space")]
    names[1:1] = [os.path.join(stage.folder, "missing"), stage.folder]
    ours, theirs = sums_like_sha256sum(stage, names)
    assert ours.returncode == theirs.returncode == 1
    assert ours.stderr.count("\n") == 2, ours.stderr
    assert "missing: No such file or directory" in ours.stderr and "Is a directory" in ours.stderr, ours.stderr


def drawn_in_slow_motion(engine, process, terminal):
    """What a client draws on its terminal while its engine runs for some milliseconds at a time: a fast machine would be
    done before there is anything to be seen."""
    drawn = b""
    os.set_blocking(terminal, False)
    deadline = time.monotonic() + 2 * PATIENCE
    running = 0.002  # at first; a slow machine gets its time, too
    while process.poll() is None:
        assert time.monotonic() < deadline, drawn
        engine.send_signal(signal.SIGSTOP)
        time.sleep(0.15)
        engine.send_signal(signal.SIGCONT)
        time.sleep(running)
        running = min(1.5 * running, 0.1)
        with contextlib.suppress(OSError):  # nothing there, or the terminal's end
            drawn += os.read(terminal, 65536)
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 65536):
            drawn += chunk
    os.close(terminal)
    return drawn


@case
def sum_draws_a_progress_bar_on_a_terminal_only(stage):
    engine = stage.rodeod()
    name = stage.file("large", 64 << 20)
    ours, theirs = os.path.join(stage.folder, "ours"), pty.openpty()
    with open(ours, "w") as out:
        process = stage.start(RODEO, "sum", "--engine", "soft:test", name, stdout=out, stderr=theirs[1])
        os.close(theirs[1])
        drawn = drawn_in_slow_motion(engine, process, theirs[0])
        assert process.wait(PATIENCE) == 0
    with open(ours) as out:
        assert out.read() == stage.run("sha256sum", name).stdout
    assert re.search(rb"\[#* *\] +\d+% [\d.]+ [KMG]iB/s", drawn), drawn


@case
def sum_ends_when_the_engine_is_killed(stage):
    engine = stage.rodeod()
    process = stage.start(RODEO, "sum", "--engine", "soft:test", "-", stdin=subprocess.PIPE)
    process.stdin.write("x" * 5_000_000)
    process.stdin.flush()
    time.sleep(0.5)
    engine.kill()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write("x" * 5_000_000)
        process.stdin.flush()
    _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and one_line(complaint), (process.returncode, complaint)


@case
def engine_stops_gracefully_in_under_a_second_with_idle_peers(stage):
    engine = stage.rodeod()
    for _ in range(3):
        ping = stage.start(RODEO, "ping", "soft:test", "--interval", "60000")
        ping.stdout.readline()
        assert ping.stdout.readline().startswith("reply")
    for number in (signal.SIGTERM, signal.SIGINT):
        status, output, took = stop(engine, number)
        assert status == 0, (status, output, stage.log())
        assert "stopped" in output and took < 1 * SLOWER, (took, output)
        engine = stage.rodeod()


@case
def engine_answers_held_calls_when_it_stops_under_load(stage):
    engine = stage.rodeod()
    bench = stage.start(RODEO, "bench", "soft:test", "--no-hugepages", "--cores", BENCH_CORE, "--seconds", "60",
                        "--mix", "delay:500000=1,null=20")
    time.sleep(0.7)
    status, output, took = stop(engine)
    assert status == 0 and took < 2 * SLOWER, (status, took, output, stage.log())
    bench.communicate(timeout=PATIENCE)
    assert bench.returncode == 1


@case
@proves("F22")
def engine_is_gone_at_full_load_with_a_stopped_client_and_at_once_when_told_twice(stage):
    for times in (1, 2):
        engine = stage.rodeod()
        stopped = stage.start(RODEO, "ping", "soft:test", "--interval", "60000")
        assert stopped.stdout.readline() and stopped.stdout.readline().startswith("reply")
        bench = stage.start(RODEO, "bench", "soft:test", "--no-hugepages", "--cores", BENCH_CORE, "--seconds", "60")
        time.sleep(0.7)
        stopped.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        for _ in range(times):
            engine.send_signal(signal.SIGINT)
            time.sleep(0.05)
        engine.communicate(timeout=PATIENCE)
        assert time.monotonic() - begin < 5 * SLOWER, stage.log()
        assert engine.returncode == 0 or times == 2 and engine.returncode == -signal.SIGINT, (times, engine.returncode, stage.log())
        stopped.kill()
        bench.communicate(timeout=PATIENCE)
        assert bench.returncode == 1


@case
def engine_prints_counters_on_sigusr1_and_goes_on(stage):
    engine = stage.rodeod()
    assert stage.rodeo("ping", "soft:test", "--count", "2", "--interval", "0").returncode == 0
    engine.send_signal(signal.SIGUSR1)
    assert "connections" in engine.stdout.readline()
    line = engine.stdout.readline()
    while "calls_received" not in line:
        line = engine.stdout.readline()
        assert line, "no calls_received"
    assert int(line.split()[0]) == 2, line
    assert stage.rodeo("ping", "soft:test", "--count", "1").returncode == 0


@case
def killed_engine_leaves_its_name_free_and_nothing_behind(stage):
    before = set(os.listdir("/dev/shm"))
    for _ in range(5):
        engine = stage.rodeod()
        assert stage.rodeo("ping", "soft:test", "--count", "1").returncode == 0
        engine.kill()
        engine.communicate()
    assert set(os.listdir("/dev/shm")) <= before


@case
@proves("F25")
def engines_that_end_at_any_time_keep_no_hugepages_and_nothing_else(stage):  # F25
    def held():
        with open("/proc/meminfo") as meminfo:
            free = int(re.search(r"^HugePages_Free:\s*(\d+)", meminfo.read(), re.M)[1])
        folders = [folder for folder in ("/dev/shm", "/dev/hugepages") if os.path.isdir(folder)]
        return free, {name for folder in folders for name in os.listdir(folder) if "rodeo" in name or "rte" in name}

    free, files = held()
    for turn in range(10):  # with hugepages where there are some
        engine = stage.rodeod(pages=())
        if turn % 2 == 0:
            engine.kill()
            engine.communicate()
        else:
            assert stop(engine, signal.SIGINT)[0] == 0, stage.log()
    for turn in range(10):  # while it starts
        engine = stage.start(RODEOD, "--poll-cores", POLL_CORE, "--listen", "soft:test")
        time.sleep(0.03 * turn)
        engine.kill()
        engine.communicate()
    stage.rodeod(pages=())
    assert stage.rodeo("ping", "soft:test", "--count", "1").returncode == 0
    stage.end()
    after, left = held()
    assert after >= free and left <= files, (free, after, left - files)


@case
@proves("F26")
def an_address_that_is_taken_is_named_with_its_cure(stage):  # F26
    path = os.path.join(stage.environment["RODEO_RUNTIME_DIR"], "test.sock")

    def refused(*words):
        assert_complaint(stage.run(RODEOD, "--no-hugepages", "--log-level", "error", "--poll-cores", BENCH_CORE, "--listen",
                                   "soft:test"), 1, "soft:test", path, *words)

    engine = stage.rodeod()
    refused("stop it or choose another name")
    assert stage.rodeo("ping", "soft:test", "--count", "1").returncode == 0  # the first one has not noticed
    engine.kill()
    engine.communicate()
    stop(stage.rodeod())  # at once
    for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):  # somebody else's
        with socket.socket(socket.AF_UNIX, kind) as other:
            other.bind(path)
            other.listen()
            refused("choose another name")
        os.unlink(path)
    with open(path, "w") as other:
        other.write("precious")
    refused("is not a socket")
    with open(path) as other:
        assert other.read() == "precious"
    os.unlink(path)
    stage.rodeod()


@case
def wrong_command_lines_get_one_line_and_status_two(stage):
    for arguments in (("--poll-cores", "zero"), ("--poll-cores", "0x"), ("--poll-cores", "2-1"), ("--credits", "0"),
                      ("--inline-send", "1000"), ("--bulk-bytes", "huge"), ("--log-level", "loud"), ("--no-such",),
                      ("stray",), ("--connections",)):
        assert_complaint(stage.run(RODEOD, *arguments), 2, "rodeod: ")
    for arguments in ((), ("no-such",), ("ping",), ("bench",), ("ping", "soft:x", "--count", "x"),
                      ("bench", "soft:x", "--proc", "nul"), ("bench", "soft:x", "--mix", "null=0"),
                      ("bench", "soft:x", "--cores", "0-"), ("bench", "soft:x", "--window", "0"),
                      ("bench", "soft:x", "--seconds", "0"), ("sum", "--block", "1")):
        assert_complaint(stage.rodeo(*arguments), 2, "rodeo")


@case
def failing_starts_get_one_line_and_status_one(stage):
    no_core = str(max(CORES) + 500)
    common = ("--no-hugepages", "--log-level", "error")
    assert_complaint(stage.run(RODEOD, *common, "--poll-cores", no_core), 1, no_core)
    assert_complaint(stage.run(RODEOD, *common, "--worker-cores", no_core), 1, no_core)
    assert_complaint(stage.run(RODEOD, *common, "--listen", "tcp:x"), 1, "tcp:x")
    assert_complaint(stage.run(RODEOD, *common, "--listen", "soft:../x"), 1, "../x")
    assert_complaint(stage.run(RODEOD, *common, "--bulk-buffers", "1000000", "--bulk-bytes", "256M"), 1, "memory")
    stage.rodeod()
    assert_complaint(stage.run(RODEOD, *common, "--poll-cores", BENCH_CORE, "--listen", "soft:test"), 1, "soft:test")
    for command in ("ping", "bench"):
        assert_complaint(stage.rodeo(command, "soft:nobody"), 1, "nobody")
        assert_complaint(stage.rodeo(command, "nonsense"), 1, "nonsense")
    assert_complaint(stage.rodeo("bench", "soft:test", "--no-hugepages", "--cores", no_core), 1, no_core)
    assert_complaint(stage.rodeo("sum", "--engine", "soft:nobody", "/etc/passwd"), 1, "nobody")


@case
def help_and_version_teach_and_end_with_zero(stage):
    for command in ((RODEOD,), (RODEO,), (RODEO, "ping"), (RODEO, "bench"), (RODEO, "sum")):
        done = stage.run(*command, "--help")
        assert done.returncode == 0 and "Examples:" in done.stdout and done.stderr == "", (command, done.stderr)
    for program in (RODEOD, RODEO):
        done = stage.run(program, "--version")
        assert done.returncode == 0 and re.fullmatch(r"rodeod? \d+\.\d+\.\d+\n", done.stdout), done.stdout


@case
def devices_are_listed_with_what_would_be_used(stage):
    done = stage.run(RODEOD, "--devices")
    assert done.returncode == 0 and done.stderr == "", (done.returncode, done.stderr)
    assert done.stdout.startswith("software HCA\n  address: soft:NAME\n  provider: software HCA\n"), done.stdout
    assert "  registration: pool key; key per call when asked for" in done.stdout, done.stdout
    folder = "/sys/class/infiniband"
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    assert sorted(re.findall(r"^(\S+)\n", done.stdout, re.MULTILINE)) == names, done.stdout
    assert ("no RDMA device\n" in done.stdout and "rdma link add" in done.stdout) == (names == []), done.stdout


@case
@proves("F23", "F40")
def nobody_may_run_all_of_it(stage):
    """Without capabilities, hugepages, or memory that may be locked: and what that costs is said, with its cure."""
    nobody = ("prlimit", "--memlock=65536:65536")
    if os.geteuid() == 0:
        nobody += ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
                   "--bounding-set=-all", "--inh-caps=-all")
        for path in (stage.folder, stage.environment["RODEO_RUNTIME_DIR"]):
            os.chown(path, 65534, 65534)
            os.chmod(path, 0o700)
    programs = os.path.join(stage.folder, "bin")  # the build folder may be private
    os.mkdir(programs, 0o755)
    global RODEOD, RODEO
    kept = RODEOD, RODEO
    try:
        RODEOD, RODEO = (shutil.copy(path, programs) for path in kept)
        engine = stage.rodeod("--bulk-buffers", "256", prefix=nobody, pages=())  # 256 MiB of them
        with open("/proc/meminfo") as meminfo:
            hugepages_free = int(re.search(r"HugePages_Free: +(\d+)", meminfo.read())[1])
        if hugepages_free == 0:
            said = r"on ordinary pages \(slower\), .*`sudo sysctl -w vm\.nr_hugepages=\d+`"
            assert re.search(said, stage.log()), stage.log()
        done = stage.run(*nobody, RODEO, "ping", "soft:test", "--count", "1")
        assert done.returncode == 0, done.stderr
        done = stage.run(*nobody, RODEO, "bench", "soft:test", "--no-hugepages", "--cores", BENCH_CORE, "--count",
                         "100", "--warmup", "0", "--mix", "null=1,mirror:64K=1")
        assert done.returncode == 0, done.stderr
        assert stop(engine)[0] == 0
    finally:
        RODEOD, RODEO = kept


def main(all_cases):
    wanted = sys.argv[3:]
    failed = []
    cases = [c for c in all_cases if not wanted or c.__name__ in wanted]
    for function in cases:
        before = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="rodeo-") as folder:
            stage = Stage(folder)
            try:
                function(stage)
                requirements = getattr(function, "proves", ())
                verdict = "ok" + ("; proves " + ", ".join(requirements) if requirements else "")
            except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as problem:
                verdict = f"FAILED: {type(problem).__name__}: {problem}"
                failed.append(function.__name__)
            finally:
                stage.end()
        print(f"{function.__name__.replace('_', ' ')} ({time.monotonic() - before:.1f} s): {verdict}", flush=True)
    print(f"{len(cases) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main(CASES))
