"""The suites: where each comes from, which cases it has, how one case is run and what became of it.

A case's run is a command in a directory with an environment; `judge` turns its exit status and output into (OUTCOME, WHY).
"""

import os
import pathlib
import re
import shutil

# Inside of a worker's name spaces (world.py).
SUITE, WORK, TEST, SCRATCH = (pathlib.Path("/mnt") / name for name in ("suite", "work", "test", "scratch"))


class Xfstests:
    name, variable, origin = "xfstests", "XFSTESTS", "github.com/kdave/xfstests"
    commit = "63a29724a85f1999e49bf0a9bf0d22643b6116e5"
    places = ("margay",)
    # `check` mounts by itself.
    mounts = False

    def cases(self, checkout):
        group = os.environ.get("XFSTESTS_GROUP", "quick")
        found = []
        # Of other groups: the list of failures is for all of them.
        self.left_out = set()
        for path in sorted((checkout / "tests/generic").glob("[0-9][0-9][0-9]")):
            groups = re.search(r"^_begin_fstest (.*)$", path.read_text(encoding="utf-8", errors="replace"), re.M)
            if groups and group in groups[1].split():
                found.append(f"generic/{path.name}")
            else:
                self.left_out.add(f"generic/{path.name}")
        return found

    def prepare(self, world):
        options = "-o suid,dev,allow_other"
        settings = {"FSTYP": "fuse", "FUSE_SUBTYP": ".margay", "TEST_DEV": "margay:test", "TEST_DIR": TEST, "SCRATCH_DEV": "margay:scratch"}
        settings |= {"SCRATCH_MNT": SCRATCH, "MOUNT_OPTIONS": options, "TEST_FS_MOUNT_OPTS": options, "RESULT_BASE": WORK / "results"}
        (WORK / "results").mkdir(exist_ok=True)
        # It expects the bare type in df's answer, though it asked mount(8) for the one with a subtype.
        df = WORK / "df"
        df.write_text("#!/bin/sh\n/bin/df \"$@\" | sed 's/ fuse[.]margay / fuse /'\n")
        df.chmod(0o755)
        settings["DF_PROG"] = f"{df} -T -P"
        (WORK / "local.config").write_text("".join(f'export {name}="{value}"\n' for name, value in settings.items()))

    def command(self, case):
        seen = WORK / "results" / f"{case}.notrun"
        seen.unlink(missing_ok=True)
        return ["./check", case], SUITE, {"HOST_OPTIONS": str(WORK / "local.config")}

    def judge(self, case, status, output):
        left_out = WORK / "results" / f"{case}.notrun"
        if left_out.exists():
            return "not run", left_out.read_text(errors="replace")
        if status == 0 and "Passed all 1 tests" in output:
            return "passed", ""
        differs = [line.strip() for line in output.splitlines() if re.match(r"\s+[+-](?![+-])", line)]
        told = [line for line in output.splitlines() if "[failed" in line or "_check_" in line or "check failed" in line]
        return "failed", " | ".join(told + differs) or output[-300:]

    def logs(self, case):
        """What tells most of a case that failed."""
        return [path for end in ("full", "out.bad", "dmesg") if (path := WORK / "results" / f"{case}.{end}").exists()]


class Ltp:
    name, variable, origin = "ltp", "LTP", "github.com/linux-test-project/ltp"
    commit = "695827725f4fc14fe583043127e0335c29bbd52d"
    places = ("ext4", "margay")
    mounts = True
    # Tests that make and mount file systems of their own say nothing about this one; those of fs_bind, /proc, /dev and /sys neither.
    own_device = re.compile(
        r"\.(all_filesystems|mount_device|format_device|needs_device|dev_fs_type)\s*=|TST_(MOUNT_DEVICE|NEEDS_DEVICE|FORMAT_DEVICE|ALL_FILESYSTEMS)=1"
        r"|tst_acquire_device|tst_find_free_loopdev"
    )
    elsewhere = re.compile(r"read_all|proc01|isofs|squashfs|binfmt_misc|quota_remount|fs_racer")
    # Part of `make install` is that they may be executed.
    scripts = ("rwtest",)
    syscalls = """access chdir chmod chown chroot close close_range copy_file_range creat dup dup2 dup3 execve execveat faccessat faccessat2
        fadvise fallocate fanotify fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr file_attr flistxattr flock
        fpathconf fremovexattr fsetxattr fstat fstatat fstatfs fsync ftruncate futimesat getcwd getdents getxattr inotify io_getevents io_setup
        io_submit io_uring ioctl lchown lgetxattr link linkat listxattr llistxattr llseek lremovexattr lseek lsetxattr lstat madvise mincore
        mkdir mkdirat mknod mknodat mmap mprotect mremap msync munmap name_to_handle_at nftw open open_by_handle_at openat openat2 pathconf
        pread preadv preadv2 pwrite pwritev pwritev2 read readahead readdir readlink readlinkat readv realpath remap_file_pages removexattr
        rename renameat renameat2 rmdir sendfile setxattr splice stat statfs statvfs statx symlink symlinkat sync sync_file_range syncfs tee
        truncate umask unlink unlinkat ustat utime utimensat utimes vmsplice write writev""".split()

    def cases(self, checkout):
        """RUNLIST:NAME of every line whose program is built; its command is found again by the name."""
        self.lines, self.programs = {}, {}
        for top in ["fs", "lib", *(f"syscalls/{name}" for name in self.syscalls)]:
            root = checkout / "testcases" / (top if top == "lib" else f"kernel/{top}")
            for path in root.rglob("*"):
                if path.is_file() and (os.access(path, os.X_OK) or path.name in self.scripts or path.suffix == ".sh"):
                    self.programs.setdefault(path.name, path)
        for runlist in ("syscalls", "fs", "fs_perms_simple"):
            for line in (checkout / "runtest" / runlist).read_text().splitlines():
                name, _, command = line.strip().replace("\t", " ").partition(" ")
                if not command or name.startswith("#") or self.elsewhere.match(name):
                    continue
                words = re.split(r"[;\s]+", command.strip())
                program = next((self.programs[word] for word in words if word in self.programs), None)
                if program is not None and not self.own_device.search(self.source(program)):
                    self.lines[f"{runlist}:{name}"] = command.strip()
        return list(self.lines)

    @staticmethod
    def source(program):
        stem = re.sub(r"_(16|64)$", "", program.name)
        for path in (program, *(program.parent / f"{name}.c" for name in (program.name, stem))):
            if path.suffix in (".c", ".sh") and path.exists():
                return path.read_text(encoding="utf-8", errors="replace")
        return ""

    def prepare(self, world):
        self.cases(SUITE)
        (TEST / "ltp").mkdir(exist_ok=True)
        (TEST / "ltp").chmod(0o777)
        # As installed, all programs in one directory.
        programs = WORK / "ltp/testcases/bin"
        shutil.rmtree(programs, ignore_errors=True)
        programs.mkdir(parents=True)
        for name, path in self.programs.items():
            if name in self.scripts or path.suffix == ".sh":
                shutil.copy(path, programs / name)
                (programs / name).chmod(0o755)
            else:
                (programs / name).symlink_to(path)

    def command(self, case):
        root = WORK / "ltp"
        extra = {"PATH": f"{root}/testcases/bin:{os.environ['PATH']}", "LTPROOT": str(root), "TMPDIR": str(TEST / "ltp")}
        extra |= {"LTP_COLORIZE_OUTPUT": "0", "LTP_TIMEOUT_MUL": os.environ.get("LTP_TIMEOUT_MUL", "5")}
        return ["sh", "-c", self.lines[case]], TEST / "ltp", extra

    def judge(self, case, status, output):
        said = [line.strip() for line in output.splitlines() if re.search(r"\bT(FAIL|BROK|WARN)\b", line)]
        # What a test of several parts left out is what tells two file systems apart, too.
        skipped = [line.strip() for line in output.splitlines() if re.search(r"\bTCONF\b", line)]
        if status == 32:
            return "not run", " | ".join(skipped)
        if status == 0:
            return ("not run", " | ".join(skipped)) if skipped and "TPASS" not in output else ("passed", " | ".join(skipped))
        return "failed", " | ".join(said) or f"exit {status}: {output[-200:]}"

    def logs(self, case):
        return []


class Pjdfstest:
    name, variable, origin = "pjdfstest", "PJDFSTEST", "github.com/pjd/pjdfstest"
    commit = "85a8aea9e685999ef0540392fd80535f873d7ff7"
    places = ("margay",)
    mounts = True
    far = False

    def cases(self, checkout):
        return [str(path.relative_to(checkout / "tests")) for path in sorted((checkout / "tests").rglob("*.t"))]

    def prepare(self, world):
        (TEST / "pjdfstest").mkdir(exist_ok=True)

    def command(self, case):
        return ["prove", str(SUITE / "tests" / case)], TEST / "pjdfstest", {}

    def judge(self, case, status, output):
        if status == 0:
            return ("not run", output) if "NOTESTS" in output else ("passed", "")
        return "failed", " | ".join(line.strip() for line in output.splitlines() if "Failed" in line)

    def logs(self, case):
        return []


class FarPjdfstest(Pjdfstest):
    """The same, on a mount of the server's bucket by another process, with a cache."""

    name = "pjdfstest-far"
    far = True


SUITES = {suite.name: suite for suite in (Xfstests(), Ltp(), Pjdfstest(), FarPjdfstest())}
