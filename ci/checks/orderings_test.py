"""A check that cannot fail is no check: small sources with known verdicts for orderings.py."""

import os
import subprocess
import sys
import tempfile

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "orderings.py")

GOOD = [
    "fn f() { x.load(Relaxed); }",
    "use core::sync::atomic::{AtomicU32, Ordering::{self, Acquire}};",
    "fn f() {\n    // Acquire: sees the slot.\n    x.load(Ordering::Acquire);\n}",
    "fn f() {\n    x.load(Ordering::Acquire); // Acquire: sees the slot.\n}",
    "fn f() {\n    // AcqRel: both ways.\n    // SAFETY: ours.\n    let y = unsafe { &*x }\n        .compare_exchange(\n            0,\n"
    "            1,\n            Ordering::AcqRel,\n            Ordering::Relaxed,\n        );\n}",
    "fn f() {\n    // Release: what was done before.\n    unsafe {\n        (*x).store(1, Ordering::Release);\n    }\n}",
    "fn f() {\n    match y {\n        // Acquire: sees it.\n        1 => x.load(Acquire),\n        _ => 0,\n    }\n}",
    "fn f() {\n    while x\n        // SeqCst: the fence of the proof.\n        .load(SeqCst)\n        != 0\n    {}\n}",
    "fn f() {\n    a();\n    // Release: what was done before.\n    if y {\n        x.store(1, Release);\n    } else {\n"
    "        x.store(2, Release);\n    }\n}",
    "fn f() {\n    while x.swap(1, Acquire) {\n        // Acquire: the last one is over.\n        a();\n    }\n}",
    "fn f() { let s = \"Acquire\"; let r = r#\"x.load(SeqCst)\"#; let c = '\"'; /* Release */ }",
    "#[cfg(test)]\nmod tests {\n    fn f() { x.load(Ordering::SeqCst); }\n}",
    "// Acquire: a. pairs: a.b\nfn f() { x.load(Acquire); }\n// Release: b. pairs:\n// a.b\nfn g() { x.store(1, Release); }",
]
BAD = [
    "fn f() {\n    x.load(Ordering::Acquire);\n}",
    "fn f() {\n    // Reads x.\n    x.load(Ordering::Acquire);\n}",
    "fn f() {\n    // Acquire: sees the slot.\n\n    x.load(Ordering::Acquire);\n}",
    "fn f() {\n    // Acquire: sees the slot.\n    a();\n    x.load(Ordering::Acquire);\n}",
    "fn f() {\n    // Acquire: sees the slot.\n    if y {\n        a();\n    }\n    x.load(Acquire);\n}",
    "// Acquire: sees the slot.\nfn f() {\n    x.load(Ordering::Acquire);\n}",
    "fn f() {\n    let c = b'\\''; let d: &'static str = \"//\"; x.load(Ordering::Acquire);\n}",
    "fn f() {\n    match y {\n        // Acquire: sees it.\n        1 => x.load(Acquire),\n        _ => x.load(Acquire),\n    }\n}",
    "#[cfg(not(test))]\nmod real {\n    fn f() { x.load(Ordering::SeqCst); }\n}",
    "// Acquire: a. pairs: a.b\nfn f() { x.load(Acquire); }",
]


def verdict(source):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "source.rs"), "w", encoding="utf-8") as file:
            file.write(source)
        return subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True, timeout=30)


def main():
    wrong = 0
    for sources, expected in ((GOOD, 0), (BAD, 1)):
        for source in sources:
            done = verdict(source)
            if done.returncode != expected:
                wrong += 1
                print(f"orderings.py gave {done.returncode} instead of {expected} for:\n{source}\n{done.stdout}{done.stderr}")
    print(f"orderings_test: {len(GOOD) + len(BAD)} sources, {wrong} wrong verdicts")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
