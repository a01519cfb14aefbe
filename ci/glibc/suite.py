#!/usr/bin/env python3
"""Builds the C library's own tests against the installed C library and runs them on NPTL and under Heddle.

Called by ci/glibc-suite.sh, which see. Everything that is the C library's stays in its source tree and in the build
folder: the makefiles there are read for what a test needs (flags, modules, arguments, environment), and the support
library its tests use is compiled from the same tree.
"""

import argparse
import concurrent.futures
import os
import re
import shlex
import signal
import subprocess
import sys
import time

# Folders whose tests are built, and where else their sources are.
FOLDERS = {
    "nptl": ["nptl", "sysdeps/pthread", "sysdeps/nptl"],
    "rt": ["rt", "sysdeps/pthread"],
    "signal": ["signal"],
    "posix": ["posix"],
    "setjmp": ["setjmp"],
    "malloc": ["malloc"],
    "dlfcn": ["dlfcn"],
    "elf": ["elf"],
    "libio": ["libio"],
    "stdio-common": ["stdio-common"],
    "stdlib": ["stdlib"],
    "misc": ["misc", "sysdeps/unix/sysv/linux"],
    "io": ["io"],
    "socket": ["socket"],
    "resolv": ["resolv"],
    "time": ["time"],
    "debug": ["debug"],
    "support": ["support"],
}
# Where headers are looked for that are not installed.
AFTER = """
support sysdeps/unix/sysv/linux/x86_64/64 sysdeps/unix/sysv/linux/x86_64 sysdeps/unix/sysv/linux/x86 sysdeps/x86/nptl
sysdeps/x86_64/nptl sysdeps/unix/sysv/linux sysdeps/nptl sysdeps/pthread sysdeps/unix/x86_64 sysdeps/unix sysdeps/posix
sysdeps/x86_64 sysdeps/x86 sysdeps/gnu sysdeps/generic nptl include
""".split()
# All tests of these; of the others those whose sources name one of WORDS.
WHOLE = {"nptl", "rt", "signal"}
WORDS = re.compile(
    r"pthread|thrd_|xthread|fork|spawn|waitpid|waitid|sigaction|sigaltstack|timer_|setitimer|sigprocmask|clone"
    r"|poll|select|getpid|gettid|tgkill"
)
# Not about what a thread library does, or not to be run on a machine that others use.
LEFT_OUT = re.compile(
    r"-static$|-printers$|^tst-audit\d|^tst-ldconfig|^tst-nss|^tst-cet-|gdb-attach|^tst-mallocfork3|^tst-clock_settime"
    r"|^tst-malloc-thread-fail|^tst-create_format"
)
# The subset for --short: one or two of each kind, all of which end within a second or two.
SHORT = """
tst-attr1 tst-barrier1 tst-barrier3 tst-basic1 tst-basic4 tst-basic6 tst-cancel1 tst-cancel8 tst-cancel13 tst-cancelx10
tst-cleanup1 tst-cleanupx3 tst-cnd-basic tst-cond1 tst-cond4 tst-cond12 tst-exec1 tst-exec2
tst-exit1 tst-fork1 tst-fork2 tst-fork4 tst-join1 tst-join5 tst-join7 tst-key1 tst-kill1 tst-kill6 tst-mtx-recursive
tst-mutex1 tst-mutex4 tst-mutex7 tst-mutexpi1 tst-mutexpi4 tst-mutexpi7 tst-once1 tst-once5 tst-raise1 tst-robust1
tst-robust7 tst-robustpi1 tst-rwlock4 tst-rwlock13 tst-sem3 tst-sem8 tst-signal1 tst-signal3
tst-spin2 tst-stack1 tst-stack3 tst-thread_local1 tst-tsd3 tst-tsd5 tst-tss-basic tst-umask1
tst-timer4 tst-timer5 tst-mqueue5 tst-aio7 tst-shm tst-spawn tst-tls1 tst-pt-tls1 tst-pthread-attr-sigmask
tst-pthread-exit-signal tst-context1
""".split()


class Makefiles:
    """What the makefiles of one folder say about its tests: as much of make's language as that takes."""

    def __init__(self, source, folder, places, objects):
        self.variables = {
            "objpfx": objects + "/",
            "common-objpfx": os.path.dirname(objects) + "/",
            "..": source + "/",
            "build-shared": "yes",
            "run-built-tests": "yes",
            "have-cxx-thread_local": "yes",
            "CXX": "c++",
            "pthread-in-libc": "yes",
            "have-z-execstack": "yes",
            "no-stack-protector": "-fno-stack-protector",
            "test-program-prefix": "",
            "host-test-program-cmd": "@PROGRAM@",
            "subdir": folder,
        }
        self.needs, self.opens = {}, {}
        for place in dict.fromkeys(places + ["sysdeps/unix/sysv/linux", "sysdeps/pthread"]):
            path = os.path.join(source, place, "Makefile")
            if os.path.exists(path):
                self.read(path, folder, place)

    def read(self, path, folder, place):
        with open(path, encoding="utf-8") as file:
            text = file.read().replace("\\\n", " ")
        skipping = [False]
        for line in text.split("\n"):
            line = line.split(" #")[0] if not line.startswith("\t") else line
            words = line.split(None, 1)
            if words and words[0] in ("ifeq", "ifneq", "ifdef", "ifndef"):
                skipping.append(skipping[-1] or not self.holds(words[0], words[1] if len(words) > 1 else "", folder))
                continue
            if words and words[0] == "else":
                if len(skipping) > 1:
                    skipping[-1] = skipping[-2] or not skipping[-1]
                continue
            if words and words[0].startswith("endif"):
                if len(skipping) > 1:
                    skipping.pop()
                continue
            if skipping[-1] or line.startswith("\t"):
                continue
            match = re.match(r"([\w.+-]+)\s*(\+=|:=|\?=|=)\s*(.*)", line)
            if match:
                name, how, value = match.groups()
                if how == "+=":
                    value = self.variables.get(name, "") + " " + value
                self.variables[name] = value
                continue
            match = re.match(r"\$\(objpfx\)([^\s:]+?)(\.out)?\s*:(?!=)\s*([^;]*)", line)
            if match:
                (self.opens if match[2] else self.needs).setdefault(match[1], []).append(match[3])

    def holds(self, kind, condition, folder):
        if kind in ("ifdef", "ifndef"):
            return (kind == "ifndef") ^ (condition.strip() in self.variables or condition.startswith("have-GLIBC"))
        match = re.match(r"\(([^,]*),(.*)\)\s*$", condition.strip())
        if not match:
            return True
        sides = [self.expand(side).strip() for side in match.groups()]
        filtered = re.match(r"\$\(filter \$\(subdir\),(.*)\)$", match[2].strip())
        if filtered:
            sides[1] = folder if folder in filtered[1].split() else ""
        return (kind == "ifeq") == (sides[0] == sides[1])

    def expand(self, text, depth=0):
        if depth > 20:
            return ""

        def one(match):
            call = match[1]
            if call.startswith("addprefix "):
                prefix, _, names = call[10:].partition(",")
                return " ".join(prefix + name for name in names.split())
            if call.startswith("addsuffix "):
                suffix, _, names = call[10:].partition(",")
                return " ".join(name + suffix for name in names.split())
            if " " in call:
                return ""
            return self.variables.get(call, "")

        while True:
            expanded = re.sub(r"\$\(([^()$]*)\)", one, text)
            depth += 1
            if expanded == text or depth > 20:
                return expanded
            text = expanded

    def get(self, name):
        return self.expand(self.variables.get(name, ""))

    def listed(self):
        names = set()
        for variable in ("tests", "tests-internal", "xtests", "tests-nolibpthread", "tests-reverse", "test-srcs", "tests-container"):
            names.update(self.get(variable).split())
        return names

    def modules(self, name):
        """Modules and objects to be linked with a test or module."""
        return self.named(self.needs, name)

    def opened(self, name):
        """Modules that are to be there when a test runs."""
        return self.named(self.opens, name)

    def named(self, rules, name):
        return [os.path.basename(word) for rule in rules.get(name, []) for word in self.expand(rule).split()]


class Suite:
    def __init__(self, options):
        self.options = options
        self.source = os.path.realpath(options.source)
        self.out = os.path.realpath(options.build)
        self.tests = {}  # name -> (folder, source)
        self.why_not = {}
        self.built_modules = {}
        self.flags = None

    # --- building -------------------------------------------------------------------------------

    def shim(self):
        """Headers that the tests find in the library's own tree when they are built there."""
        shim = os.path.join(self.out, "shim")
        os.makedirs(os.path.join(shim, "malloc"), exist_ok=True)
        for name in (
            "array_length.h libc-diag.h intprops.h intprops-internal.h libc-pointer-arith.h scratch_buffer.h libc-symver.h "
            "allocate_once.h verify.h dso_handle.h"
        ).split():
            link(os.path.join(self.source, "include", name), os.path.join(shim, name))
        link(os.path.join(self.source, "sysdeps/x86_64/stackinfo.h"), os.path.join(shim, "stackinfo.h"))
        link(os.path.join(self.source, "sysdeps/nptl/pthreaddef.h"), os.path.join(shim, "pthreaddef.h"))
        link(os.path.join(self.source, "malloc/dynarray-skeleton.c"), os.path.join(shim, "malloc/dynarray-skeleton.c"))
        write(shim, "config.h", "#define HAVE_CXX_THREAD_LOCAL 1\n")
        write(shim, "sysdep.h", "#include <sys/syscall.h>\n#include <unistd.h>\n"
              "#define INTERNAL_SYSCALL_CALL(name, ...) syscall(__NR_##name, ##__VA_ARGS__)\n")
        write(shim, "socket-constants-time64.h", "")
        write(
            shim,
            "atomic.h",
            "#include <stdbool.h>\n"
            + "".join(
                f"#define atomic_{how}_{order}({names}) __atomic_{builtin}({arguments}, __ATOMIC_{order.upper()})\n"
                for order in ("relaxed", "acquire", "release")
                for how, builtin, names, arguments in (
                    ("load", "load_n", "place", "place"),
                    ("store", "store_n", "place, value", "place, value"),
                    ("fetch_add", "fetch_add", "place, value", "place, value"),
                    ("exchange", "exchange_n", "place, value", "place, value"),
                )
                if (how, order) not in (("load", "release"), ("store", "acquire"))
            )
            + "".join(
                f"#define atomic_compare_exchange_weak_{order}(place, expected, value) "
                f"__atomic_compare_exchange_n(place, expected, value, 1, __ATOMIC_{order.upper()}, __ATOMIC_RELAXED)\n"
                for order in ("relaxed", "acquire", "release")
            ),
        )
        with open(os.path.join(shim, "shlib-compat.h"), "w", encoding="utf-8") as file:
            file.write(
                "#include <libc-symver.h>\n"
                "#define SHLIB_COMPAT(library, from, until) 0\n"
                "#define TEST_COMPAT(library, from, until) 0\n"
                "#define compat_symbol_reference(library, local, symbol, version) "
                "compat_reference_(local, symbol, version)\n"
                "#define GLIBC_2_0 GLIBC_2.2.5\n#define GLIBC_2_1 GLIBC_2.2.5\n"
                "#define compat_reference_(local, symbol, version) "
                '__asm__(".symver " #local ", " #symbol "@" #version)\n'
            )
        # glibc's own view of itself, as far as tests look at it.
        with open(os.path.join(shim, "preset.h"), "w", encoding="utf-8") as file:
            file.write(
                "#define _GNU_SOURCE 1\n#include <limits.h>\n#define _ISOMAC 1\n#define MODULE_NAME testsuite\n"
                "#define IS_IN(lib) 0\n#define PASTE_NAME1(a, b) a##b\n#define PASTE_NAME(a, b) PASTE_NAME1(a, b)\n"
                "#define attribute_hidden\n#define weak_function __attribute__((weak))\n#define attribute_relro\n"
                "#define rtld_hidden_proto(name)\n#define attribute_tls_model_ie\n#define hidden_proto(name)\n"
                "#define attribute_compat_text_section\n#define libc_hidden_proto(name)\n#define libc_hidden_def(name)\n#define TUNABLES_FRONTEND_valstring 1\n"
                '#define OBJPFX "' + self.out + '/"\n'
            )
        self.flags = [
            "-std=gnu11", "-fgnu89-inline", "-O2", "-g", "-w", "-fno-builtin-printf", "-U_FORTIFY_SOURCE", "-D_LIBC_REENTRANT",
            "-include", os.path.join(shim, "preset.h"), "-I", shim, "-idirafter", self.source, "-DTIMEOUTFACTOR=1",
        ]  # fmt: skip
        for folder in AFTER:
            self.flags += ["-idirafter", os.path.join(self.source, folder)]

    def command(self, command, log):
        with open(log, "wb") as file:
            file.write((shlex.join(command) + "\n").encode())
            file.flush()
            return subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).returncode == 0

    def support(self):
        objects = os.path.join(self.out, "support-objects")
        os.makedirs(objects, exist_ok=True)
        self.library = os.path.join(self.out, "libsupport.a")
        if os.path.exists(self.library):
            return
        with open(os.path.join(self.source, "support/Makefile"), encoding="utf-8") as file:
            text = file.read().replace("\\\n", " ")
        names = re.search(r"libsupport-routines = (.*)", text)[1].split()
        paths = [
            f'-D{name}="{value}"'
            for name, value in {
                "SRCDIR_PATH": self.source,
                "OBJDIR_PATH": self.out,
                "OBJDIR_ELF_LDSO_PATH": "/lib64/ld-linux-x86-64.so.2",
                "INSTDIR_PATH": "/usr",
                "LIBDIR_PATH": "/usr/lib",
                "BINDIR_PATH": "/usr/bin",
                "SBINDIR_PATH": "/usr/sbin",
                "SLIBDIR_PATH": "/lib",
                "ROOTSBINDIR_PATH": "/sbin",
                "COMPLOCALEDIR_PATH": "/usr/lib/locale",
            }.items()
        ]

        def one(name):
            target = os.path.join(objects, name + ".o")
            command = ["cc", *self.flags, *paths, "-c", os.path.join(self.source, "support", name + ".c"), "-o", target]
            return target if self.command(command, target + ".log") else None

        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            made = [target for target in pool.map(one, names) if target]
        subprocess.run(["ar", "rcs", self.library, *made], check=True)
        print(f"glibc-suite: support library: {len(made)} of {len(names)} files", flush=True)

    def source_of(self, name, places):
        for place in places:
            for extension in (".c", ".cc"):
                path = os.path.join(self.source, place, name + extension)
                if os.path.exists(path):
                    return path
        return None

    def all_text(self, path, depth=0):
        """A source with the sources it includes."""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            return ""
        if depth < 3:
            for name in re.findall(r'#\s*include\s*[<"]([^>"]+\.c)[>"]', text):
                for base in (os.path.dirname(path), self.source):
                    other = os.path.join(base, name)
                    if os.path.exists(other) and not other.endswith(("test-skeleton.c", "test-driver.c")):
                        text += self.all_text(other, depth + 1)
                        break
        return text

    def find(self):
        for folder, places in FOLDERS.items():
            objects = os.path.join(self.out, folder)
            makefiles = Makefiles(self.source, folder, places, objects)
            for name in sorted(makefiles.listed()):
                if not name.startswith(("tst-", "test-", "bug")) or LEFT_OUT.search(name) or name in self.tests:
                    continue
                path = self.source_of(name, places)
                if path is None:
                    continue
                if folder not in WHOLE and not WORDS.search(self.all_text(path)):
                    continue
                self.tests[name] = (folder, path, makefiles, places)
        chosen = self.options.only or (SHORT if self.options.short else None)
        if chosen:
            self.tests = {name: test for name, test in self.tests.items() if name in chosen}

    def module(self, name, makefiles, places, folder):
        """Builds NAME.so and what it is linked with; None if that fails."""
        target = os.path.join(self.out, folder, name)
        if name in self.built_modules:
            return self.built_modules[name]
        self.built_modules[name] = None
        base = name[:-3]
        path = self.source_of(base, places)
        if path is None:
            return None
        linked = [self.module(other, makefiles, places, folder) for other in makefiles.modules(name) if other.endswith(".so")]
        command = [
            "c++" if path.endswith(".cc") else "cc",
            *[flag for flag in self.flags if not (path.endswith(".cc") and flag in ("-std=gnu11", "-fgnu89-inline"))],
            "-fPIC", "-shared", *flags_of(makefiles, base), path, "-o", target,
            *[module for module in linked if module],
            *shlex.split(makefiles.get(f"LDFLAGS-{name}")), "-Wl,-rpath,$ORIGIN", self.library, "-ldl",
        ]  # fmt: skip
        if os.path.exists(target) or self.command(command, target + ".log"):
            self.built_modules[name] = target
        return self.built_modules[name]

    def modules_of(self, name):
        folder, path, makefiles, places = self.tests[name]
        linked = []
        for other in makefiles.modules(name):
            if other.endswith(".so"):
                module = self.module(other, makefiles, places, folder)
                if module:
                    linked.append(module)
        # Modules that it opens itself.
        named = re.findall(r"[\w-]+\.so\b", self.all_text(path)) + makefiles.opened(name)
        for other in sorted({word for word in named if word.endswith(".so")}):
            self.module(other, makefiles, places, folder)
        return linked

    def build_one(self, name, linked):
        folder, path, makefiles, places = self.tests[name]
        target = os.path.join(self.out, folder, name)
        if os.path.exists(target):
            return True
        for module in makefiles.modules(name):
            if module.endswith(".so") and self.built_modules.get(module) is None and module in self.built_modules:
                return False
        extra = []
        for other in makefiles.modules(name):
            if other.endswith(".o"):
                source = self.source_of(other[:-2], places)
                if source:
                    extra.append(source)
        plus = path.endswith(".cc")
        command = [
            "c++" if plus else "cc",
            *[flag for flag in self.flags if not (plus and flag in ("-std=gnu11", "-fgnu89-inline"))],
            *flags_of(makefiles, name), path, *extra, "-o", target,
            # Linked first, needed or not, as in the library's own build.
            *(["-Wl,--no-as-needed"] if linked else []), *linked,
            f"-Wl,-rpath,{os.path.dirname(target)}", "-Wl,--allow-shlib-undefined",
            *shlex.split(makefiles.get(f"LDFLAGS-{name}")),
            self.library, *shlex.split(makefiles.get(f"LDLIBS-{name}")), "-lm", "-lrt", "-ldl", "-lpthread", "-lresolv",
        ]  # fmt: skip
        return self.command(command, target + ".log")

    def build(self):
        for folder in FOLDERS:
            os.makedirs(os.path.join(self.out, folder), exist_ok=True)
            write(os.path.join(self.out, folder), "Makefile", "")  # which some tests read
        linked = {name: self.modules_of(name) for name in self.tests}
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            names = list(self.tests)
            done = dict(zip(names, pool.map(lambda name: self.build_one(name, linked[name]), names)))
        for name in names:
            if not done[name]:
                self.why_not[name] = "not built"
        print(f"glibc-suite: {sum(done.values())} of {len(names)} tests built", flush=True)

    # --- running --------------------------------------------------------------------------------

    def run_one(self, name, on_heddle, factor):
        folder, path, makefiles, _ = self.tests[name]
        objects = os.path.join(self.out, folder)
        program = os.path.join(objects, name)
        try:
            arguments = [
                word.replace("@PROGRAM@", program) for word in shlex.split(makefiles.get(f"{name}-ARGS") or makefiles.get("ARGS-" + name))
            ]
            environment = dict(os.environ, LC_ALL="C", LD_LIBRARY_PATH=objects, TIMEOUTFACTOR=str(factor))
            for word in shlex.split(makefiles.get(f"{name}-ENV")):
                key, _, value = word.partition("=")
                environment[key] = value.replace(os.path.join(self.out, "malloc/libc_malloc_debug.so"), "libc_malloc_debug.so.0")
        except ValueError:
            return "arguments", 0.0
        prefix = [self.options.heddle, "run", "--workers", str(self.options.workers), "--"] if on_heddle else []
        limit = re.search(r"#\s*define\s+TIMEOUT\s+\(?(\d+)(?:\s*\*\s*(\d+))?", self.all_text(path))
        seconds = 20 * factor
        if limit:
            seconds = int(limit[1]) * int(limit[2] or 1) * factor
        log = os.path.join(objects, name + (".heddle" if on_heddle else ".nptl"))
        started = time.monotonic()
        with open(log, "wb") as file:
            process = subprocess.Popen(
                prefix + [program] + arguments, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=environment, cwd=os.path.join(self.out, folder), start_new_session=True,
            )  # fmt: skip
            try:
                status = process.wait(seconds + 5)
            except subprocess.TimeoutExpired:
                status = "no end"
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        return status, time.monotonic() - started

    def on_both(self, name):
        nptl, took = self.run_one(name, False, 1)
        if nptl != 0:
            return name, nptl, None, took, 0.0
        heddle, longer = self.run_one(name, True, 2)
        return name, nptl, heddle, took, longer

    def run(self):
        passed, heddle = [], {}
        names = [name for name in self.tests if name not in self.why_not]
        with concurrent.futures.ThreadPoolExecutor(self.options.at_once) as pool:
            for future in concurrent.futures.as_completed([pool.submit(self.on_both, name) for name in names]):
                name, nptl, heddle[name], took, longer = future.result()
                if nptl == 0:
                    passed.append(name)
                else:
                    self.why_not[name] = "unsupported" if nptl == 77 else f"nptl: {nptl}"
                if self.options.verbose:
                    print(f"{name}: nptl {nptl} ({took:.1f} s), heddle {heddle[name]} ({longer:.1f} s)", flush=True)
        passed.sort()
        lost = []
        for name in passed:
            if heddle[name] == 0:
                continue
            # Alone, three times on each.
            again = [self.run_one(name, True, 2)[0] for _ in range(3)]
            if all(status == 0 for status in again):
                print(f"glibc-suite: {name}: {heddle[name]} once, then passed alone 3 times", flush=True)
                continue
            plain = [self.run_one(name, False, 1)[0] for _ in range(3)]
            if any(status != 0 for status in plain):
                self.why_not[name] = f"unsteady on nptl: {plain}"
                continue
            bad = sum(status != 0 for status in again)
            if bad == 1:
                verdict = "unsteady"
            else:
                verdict = "lost"
                lost.append(name)
            print(f"{verdict} {name} ({self.tests[name][0]}): {heddle[name]}, then {again}; {last_line(self, name)}", flush=True)
        if self.options.verbose:
            for name, why in sorted(self.why_not.items()):
                print(f"left out {name}: {why}")
        counted = [name for name in passed if name not in self.why_not]
        missing = sum(why == "not built" for why in self.why_not.values())
        print(
            f"glibc-suite: {len(lost)} lost of {len(counted)} that pass on NPTL "
            f"({len(self.tests)} tests, {missing} not built, {len(self.why_not) - missing} do not pass on NPTL)"
        )
        return 1 if lost else 0


def last_line(suite, name):
    with open(os.path.join(suite.out, suite.tests[name][0], name + ".heddle"), encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1][:160] if lines else "no output"


def flags_of(makefiles, base):
    flags = []
    for extension in (".c", ".cc", ".o", ".os"):
        flags += shlex.split(makefiles.get(f"CFLAGS-{base}{extension}"))
        flags += shlex.split(makefiles.get(f"CPPFLAGS-{base}{extension}"))
    return [flag for flag in flags if flag.startswith("-") and flag != "-Werror"]


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def link(target, name):
    if not os.path.lexists(name) and os.path.exists(target):
        os.symlink(target, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--heddle", required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", action="append")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--no-run", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    # Ignored under nohup or in a script's background, which tests would inherit; a handler is the default action for them.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    suite = Suite(options)
    os.makedirs(suite.out, exist_ok=True)
    suite.shim()
    suite.support()
    suite.find()
    if options.list:
        print("\n".join(f"{test[0]}/{name}" for name, test in suite.tests.items()))
        return 0
    suite.build()
    return 0 if options.no_run else suite.run()


if __name__ == "__main__":
    sys.exit(main())
