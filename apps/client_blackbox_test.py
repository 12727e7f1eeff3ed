#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rodeo ls, cp and stat as a user would run them, against a rodeod with exports in memory and of a directory:
client_blackbox_test.py RODEOD RODEO [CASE...]"""

import json
import os
import pty
import re
import resource
import signal
import stat
import subprocess
import sys
import time

import blackbox_test
from blackbox_test import PATIENCE, RODEO, SLOWER, assert_complaint, drawn_in_slow_motion, one_line

CASES = []
SIZES = (0, 1, 4095, 4096, (1 << 20) + 3)


def case(function):
    CASES.append(function)
    return function


def serve(stage):
    """An engine with these exports; the directory behind /dir."""
    behind = os.path.join(stage.folder, "behind")
    os.mkdir(behind)
    engine = stage.rodeod("--mount-port", "0", "--export", "/data=memory,size=64M,no_root_squash", "--export",
                          f"/dir={behind},no_root_squash", "--export", "/small=memory,size=2M,no_root_squash",
                          "--export", "/fixed=memory,size=2M,ro", "--export", f"/fixed-dir={behind},ro,no_root_squash")
    return engine, behind


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def names(stage, location, *options):
    done = stage.rodeo("ls", *options, location)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def ok(done):
    assert done.returncode == 0 and done.stderr == "", (done.args, done.returncode, done.stdout, done.stderr)
    return done.stdout


@case
def cp_moves_files_both_ways_and_sums_them(stage):
    _, behind = serve(stage)
    files = [stage.file(f"file-{size}", size) for size in SIZES]
    for export in ("/data", "/dir"):
        sums = ok(stage.rodeo("cp", "--checksum", *files, f"soft:test{export}/"))
        assert sums == stage.run("sha256sum", *files).stdout, sums
        back = os.path.join(stage.folder, "back" + export[1:])
        os.mkdir(back)
        sources = [f"soft:test{export}/file-{size}" for size in SIZES]
        sums = ok(stage.rodeo("cp", "--checksum", "--block", "4K", "--window", "3", *sources, back))
        assert stage.run("sha256sum", "-c", input=sums).returncode == 0, sums
        for name in files:
            assert contents(name) == contents(os.path.join(back, os.path.basename(name))), name
        assert sorted(os.listdir(back)) == sorted(map(os.path.basename, files))
    for name in files:
        assert contents(name) == contents(os.path.join(behind, os.path.basename(name))), name
    assert sorted(os.listdir(behind)) == sorted(map(os.path.basename, files))


@case
def cp_takes_every_form_of_registration_threshold_and_block(stage):
    _, behind = serve(stage)
    name = stage.file("file", (1 << 20) + 3)
    for options in (["--registration", "pool-key"], ["--registration", "key-per-call"],
                    ["--registration", "remote-invalidation"], ["--inline", "1K", "--block", "1K", "--window", "64"],
                    ["--inline", "256K", "--block", "64K"], ["--window", "1"], ["--block", "5000"]):
        ok(stage.rodeo("cp", *options, name, "soft:test/dir/there"))
        ok(stage.rodeo("cp", *options, "soft:test/dir/there", name + ".back"))
        assert contents(name) == contents(os.path.join(behind, "there")) == contents(name + ".back"), options


@case
def cp_copies_trees_with_modes_times_and_links(stage):
    _, behind = serve(stage)
    tree = os.path.join(stage.folder, "tree")
    os.makedirs(os.path.join(tree, "a", "b"))
    os.mkdir(os.path.join(tree, "empty"))
    for place, mode, when in (("f", 0o640, 1), ("a/g", 0o755, 981173106), ("a/b/h", 0o400, 2**31 + 5)):
        path = os.path.join(tree, place)
        with open(path, "w") as file:
            file.write(place * 1000)
        os.chmod(path, mode)
        os.utime(path, ns=(when * 10**9 + 7, when * 10**9 + 123456789))
    os.symlink("a/b/h", os.path.join(tree, "link"))
    os.symlink("/nowhere/" + "x" * 3900, os.path.join(tree, "long link"))
    os.chmod(os.path.join(tree, "empty"), 0o1700)
    os.utime(os.path.join(tree, "a"), (5, 6))
    for export in ("/data", "/dir"):
        ok(stage.rodeo("cp", "-rp", tree, f"soft:test{export}"))
        back = os.path.join(stage.folder, "back" + export[1:])
        ok(stage.rodeo("cp", "-rp", f"soft:test{export}/tree", back))
        seen = [path for path, _, _ in os.walk(back)]
        assert len(seen) == 4, seen
        places = [back] if export == "/data" else [back, os.path.join(behind, "tree")]
        for there in places:
            assert stage.run("diff", "-r", "--no-dereference", tree, there).returncode == 0
            for folder, folders, files in os.walk(tree):
                for name in folders + files:
                    ours = os.path.join(folder, name)
                    theirs = os.path.join(there, os.path.relpath(ours, tree))
                    a, b = os.lstat(ours), os.lstat(theirs)
                    assert stat.S_IFMT(a.st_mode) == stat.S_IFMT(b.st_mode), theirs
                    if not stat.S_ISLNK(a.st_mode):
                        assert (a.st_mode, a.st_mtime_ns) == (b.st_mode, b.st_mtime_ns), (theirs, a, b)
        # Again, over what is there, and what a directory holds into another.
        ok(stage.rodeo("cp", "-r", tree, f"soft:test{export}"))
        ok(stage.rodeo("cp", "-r", f"soft:test{export}/tree/.", back))
        assert stage.run("diff", "-r", "--no-dereference", tree, back).returncode == 0


@case
def cp_keeps_the_mode_of_what_it_replaces_and_follows_single_links(stage):
    _, behind = serve(stage)
    name = stage.file("new", 5000)
    for path in (os.path.join(behind, "old"), os.path.join(stage.folder, "old")):
        with open(path, "w") as file:
            file.write("old")
        os.chmod(path, 0o604)
    os.symlink("old", os.path.join(behind, "link"))
    ok(stage.rodeo("cp", name, "soft:test/dir/old"))
    assert stat.S_IMODE(os.stat(os.path.join(behind, "old")).st_mode) == 0o604
    os.symlink(name, os.path.join(stage.folder, "to-new"))
    ok(stage.rodeo("cp", os.path.join(stage.folder, "to-new"), "soft:test/dir"))
    assert not os.path.islink(os.path.join(behind, "to-new"))
    ok(stage.rodeo("cp", "soft:test/dir/link", os.path.join(stage.folder, "old")))
    assert contents(os.path.join(stage.folder, "old")) == contents(name)
    assert stat.S_IMODE(os.stat(os.path.join(stage.folder, "old")).st_mode) == 0o604


@case
def ls_lists_sorted_long_and_hidden(stage):
    _, behind = serve(stage)
    assert names(stage, "soft:test") == names(stage, "soft:test/") == ["/data", "/dir", "/small", "/fixed", "/fixed-dir"]
    for name in ("b", "a", "B", ".hidden", "z" * 255, "with blank"):
        with open(os.path.join(behind, name), "w") as file:
            file.write(name)
    os.chmod(os.path.join(behind, "b"), 0o4751)
    os.utime(os.path.join(behind, "b"), (0, 981173106))
    os.mkdir(os.path.join(behind, "d"), 0o700)
    os.symlink("where/ever", os.path.join(behind, "s"))
    os.mkfifo(os.path.join(behind, "p"))
    visible = ["B", "a", "b", "d", "p", "s", "with blank", "z" * 255]
    assert names(stage, "soft:test/dir") == visible
    assert names(stage, "soft:test/dir/", "-a") == [".", "..", ".hidden"] + visible
    assert names(stage, "soft:test/dir/b") == ["/dir/b"]
    lines = {line.split()[-1]: line for line in names(stage, "soft:test/dir", "-l")}
    local = time.strftime("%Y-%m-%d %H:%M", time.localtime(981173106))
    assert lines["b"].split() == ["-rwsr-x--x", "1", str(os.getuid()), str(os.getgid()), "1", *local.split(), "b"], lines
    assert lines["where/ever"].startswith("l") and " s -> where/ever" in lines["where/ever"]
    assert lines["d"].startswith("drwx------ 2 ") and lines["p"].startswith("p")
    assert names(stage, "soft:test/dir", "-ld")[0].startswith("d")
    both = stage.rodeo("ls", "soft:test/dir/d", "soft:test/data", "soft:test/dir/none")
    assert both.returncode == 1 and both.stdout == "soft:test/dir/d:\n\nsoft:test/data:\n", both.stdout
    assert one_line(both.stderr) and "soft:test/dir/none" in both.stderr, both.stderr


@case
def ls_reads_a_hundred_thousand_entries(stage):
    _, behind = serve(stage)
    count = 100_000 // SLOWER
    expected = [f"entry-{i:06}" for i in range(count)]
    for name in expected:
        os.mknod(os.path.join(behind, name))
    assert names(stage, "soft:test/dir") == expected
    done = stage.rodeo("ls", "-l", "soft:test/dir", timeout=10 * PATIENCE)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == expected, done.stderr


@case
def stat_tells_all_of_it(stage):
    _, behind = serve(stage)
    name = os.path.join(behind, "file")
    with open(name, "w") as file:
        file.write("x" * 5000)
    os.chmod(name, 0o2640)
    os.utime(name, ns=(10**9 + 1, 2 * 10**9 + 2))
    os.symlink("file", os.path.join(behind, "link"))
    about = os.stat(name)
    line, linked, followed = (json.loads(ok(stage.rodeo("stat", "--json", *words))) for words in
                              (["soft:test/dir/file"], ["soft:test/dir/link"], ["-L", "soft:test/dir/link"]))
    for key, value in {"location": "soft:test/dir/file", "type": "regular file", "mode": "2640", "nlink": 1,
                       "uid": about.st_uid, "gid": about.st_gid, "size": 5000, "used": about.st_blocks * 512,
                       "fileid": about.st_ino, "rdev": [0, 0], "atime": {"seconds": 1, "nseconds": 1},
                       "mtime": {"seconds": 2, "nseconds": 2}}.items():
        assert line[key] == value, (key, line)
    assert line["ctime"]["seconds"] == int(about.st_ctime) and "target" not in line
    assert linked["type"] == "symbolic link" and linked["target"] == "file"
    assert followed["fileid"] == about.st_ino and followed["location"] == "soft:test/dir/link"
    text = ok(stage.rodeo("stat", "soft:test/dir/file"))
    for words in ("Type: regular file", "Size: 5000", "Mode: 2640 (-rw-r-S---)", f"Uid: {about.st_uid}",
                  f"Fileid: {about.st_ino}", "Modify: " + time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(2)) +
                  ".000000002"):
        assert words in text, (words, text)


@case
def names_of_all_kinds_go_both_ways(stage):
    _, behind = serve(stage)
    tree, back = os.path.join(stage.folder, "tree"), os.path.join(stage.folder, "back")
    os.mkdir(tree)
    odd = ["n" * 255, " ", "-r", "a\nb", "\\", "\u00e9" * 127, b"\xff\xfe", "soft:x", "*", ".rodeo"]
    for name in odd:
        path = os.path.join(os.fsencode(tree), name if isinstance(name, bytes) else os.fsencode(name))
        with open(path, "wb") as file:
            file.write(os.path.basename(path))
    for export in ("/data", "/dir"):
        ok(stage.rodeo("cp", "-r", tree, f"soft:test{export}/"))
        ok(stage.rodeo("cp", "-r", f"soft:test{export}/tree/", back + export[1:]))
        assert stage.run("diff", "-r", tree, back + export[1:]).returncode == 0
        assert len(os.listdir(back + export[1:])) == len(odd)
    assert_complaint(stage.rodeo("cp", os.path.join(tree, " "), "soft:test/dir/" + "n" * 256), 1, "NFS3ERR_NAMETOOLONG")


@case
def what_goes_wrong_is_said_in_one_line(stage):
    _, behind = serve(stage)
    name = stage.file("file", 100_000)
    missing = os.path.join(stage.folder, "missing")
    target = os.path.join(stage.folder, "target")
    assert_complaint(stage.rodeo("cp", "soft:test/dir/none", target), 1, "soft:test/dir/none", "NFS3ERR_NOENT",
                     "no such file or directory")
    assert_complaint(stage.rodeo("cp", missing, "soft:test/dir"), 1, missing, "No such file")
    assert_complaint(stage.rodeo("cp", name, "soft:test/dir/none/file"), 1, "NFS3ERR_NOENT")
    assert_complaint(stage.rodeo("cp", name, missing, "soft:test/dir/none"), 1, "none", "directory")
    assert_complaint(stage.rodeo("cp", name, "soft:test/fixed/"), 1, name, "NFS3ERR_ROFS", "read-only")
    assert_complaint(stage.rodeo("cp", name, "soft:test/fixed-dir/"), 1, name, "NFS3ERR_ROFS")
    assert_complaint(stage.rodeo("cp", stage.folder, "soft:test/dir"), 1, "is a directory", "-r")
    assert_complaint(stage.rodeo("cp", "soft:test/dir", target), 1, "is a directory", "-r")
    assert_complaint(stage.rodeo("cp", "soft:test/nothing/x", target), 1, "/data", "no export")
    assert_complaint(stage.rodeo("cp", name, "soft:nobody/data/"), 1, "nobody")
    assert_complaint(stage.rodeo("ls", "soft:test/dir/none"), 1, "soft:test/dir/none", "NFS3ERR_NOENT")
    assert_complaint(stage.rodeo("stat", "soft:test/dir/none"), 1, "soft:test/dir/none", "NFS3ERR_NOENT")
    assert_complaint(stage.rodeo("cp", name, target), 2, "rdma://HOST")
    assert_complaint(stage.rodeo("cp", "soft:test/dir/a", "soft:test/dir/b"), 2, "rdma://HOST")
    assert_complaint(stage.rodeo("cp", "soft:a/x", "soft:b/x", "."), 2, "one server")
    assert_complaint(stage.rodeo("ls", "/etc"), 2, "/etc", "rdma://HOST")
    assert_complaint(stage.rodeo("cp", name), 2, "rodeo cp --help")
    assert not os.path.exists(target)
    # One bad file among others does not keep those from being copied.
    done = stage.rodeo("cp", name, missing, "soft:test/dir")
    assert_complaint(done, 1, missing)
    assert contents(os.path.join(behind, "file")) == contents(name) and os.listdir(behind) == ["file"]
    if os.geteuid() == 0:
        os.chmod(behind, 0o755)
        assert_complaint(stage.rodeo("cp", "--uid", "12345", name, "soft:test/dir/theirs"), 1, "NFS3ERR_ACCES", "--uid")
    locked = os.path.join(stage.folder, "locked")
    os.mkdir(locked)
    done = stage.rodeo("cp", "soft:test/dir/file", os.path.join(locked, "none", "file"))
    assert_complaint(done, 1, "none", "No such file")


@case
def a_full_server_leaves_nothing_half_written(stage):
    serve(stage)
    small, large = stage.file("small", 1000), stage.file("large", 8 << 20)
    ok(stage.rodeo("cp", small, "soft:test/small/large"))
    assert_complaint(stage.rodeo("cp", large, "soft:test/small/"), 1, large, "NFS3ERR_NOSPC", "no space")
    assert names(stage, "soft:test/small", "-a") == [".", "..", "large"]
    ok(stage.rodeo("cp", "soft:test/small/large", large + ".back"))
    assert contents(small) == contents(large + ".back")


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def begun(folder):
    """Whether a copy into the folder has begun."""
    return any(name.startswith(".rodeo-cp-") and os.stat(os.path.join(folder, name)).st_size > 0
               for name in os.listdir(folder))


SLOW = ("--block", "1K", "--window", "1")


@case
def a_killed_server_leaves_nothing_half_written(stage):
    engine, behind = serve(stage)
    large = stage.file("large", 256 << 20)
    os.link(large, os.path.join(behind, "large"))
    target = os.path.join(stage.folder, "target")
    os.mkdir(target)
    process = stage.start(RODEO, "cp", *SLOW, "soft:test/dir/large", target)
    until(lambda: begun(target))
    engine.kill()
    _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and one_line(complaint) and "connection was lost" in complaint, complaint
    assert os.listdir(target) == []
    os.unlink(os.path.join(behind, "large"))
    engine.communicate()
    stage.rodeod("--mount-port", "0", "--export", f"/dir={behind},no_root_squash", name="again")
    process = stage.start(RODEO, "cp", *SLOW, large, "soft:again/dir/")
    until(lambda: begun(behind))
    stage.processes[-2].kill()
    _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and one_line(complaint) and large in complaint, complaint
    assert "large" not in os.listdir(behind)


@case
def a_full_disk_here_leaves_nothing_half_written(stage):
    _, behind = serve(stage)
    with open(os.path.join(behind, "large"), "wb") as file:
        file.truncate(256 << 20)
    target = os.path.join(stage.folder, "target")
    os.mkdir(target)
    process = stage.start("sh", "-c", 'trap "" XFSZ; exec "$0" "$@"', RODEO, "cp", *SLOW, "soft:test/dir/large", target)
    until(lambda: begun(target))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and one_line(complaint), complaint
    assert "soft:test/dir/large" in complaint and "cannot write it: File too large" in complaint, complaint
    assert os.listdir(target) == []


@case
def an_interrupted_copy_leaves_nothing_behind(stage):
    _, behind = serve(stage)
    large = stage.file("large", 256 << 20)
    os.link(large, os.path.join(behind, "there"))
    target = os.path.join(stage.folder, "target")
    os.mkdir(target)
    for source, destination, folder in ((large, "soft:test/dir/", behind), ("soft:test/dir/there", target, target)):
        process = stage.start(RODEO, "cp", *SLOW, source, destination)
        until(lambda where=folder: begun(where))
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1 and one_line(complaint) and "interrupted" in complaint, complaint
    assert os.listdir(behind) == ["there"] and os.listdir(target) == []


@case
def cp_draws_a_progress_bar_on_a_terminal(stage):
    engine, _ = serve(stage)
    name = stage.file("large", 48 << 20)
    ours, theirs = pty.openpty()
    process = stage.start(RODEO, "cp", "--block", "4K", "--window", "1", name, "soft:test/data/", stderr=theirs)
    os.close(theirs)
    drawn = drawn_in_slow_motion(engine, process, ours)
    assert process.wait(PATIENCE) == 0
    assert re.search(rb"\[#* *\] +\d+% [\d.]+ [KMG]iB/s", drawn), drawn


@case
def help_teaches(stage):
    for command in ("ls", "cp", "stat"):
        text = ok(stage.rodeo(command, "--help"))
        assert "Examples:" in text and "--mount-port" in text, text


if __name__ == "__main__":
    sys.exit(blackbox_test.main(CASES))
