//! The program around its workers: what it and they see of each other, and the first process's end.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio, exit};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use heddle::process::{ArenaArc, ArenaBox, TaskError, pids, place};
use heddle::{Mode, Options, SpawnError, task};

use super::deaths::{a_lock_of_a_dead_process, die};
use super::tasks::{tasks_that_wait, threads_and_std_in_a_task};
use super::*;

/// The name under which a process is a test's child.
pub const GRANDCHILD: &str = "grandchild";
pub const PROCESS: &[Test] = tests! {
    the_program_hears_of_no_child the_first_process_is_killed the_first_process_executes code_that_came_later
    a_forked_child_has_no_arena closures_do_not_cross each_process_its_own_statics a_terminal_s_signals
    kernel_threads_where_user_threads_are_refused
};

fn the_program_hears_of_no_child() {
    unsafe extern "C" {
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    }
    assert!(matches!(task(die, 0).join(), Err(TaskError::Died(_))));
    let mut status = 0;
    // SAFETY: a place for a status; 1 is WNOHANG.
    assert_eq!(unsafe { waitpid(-1, &raw mut status, 1) }, -1, "there is no child to wait for");
    assert_eq!(std::io::Error::last_os_error().kind(), std::io::Error::from_raw_os_error(10).kind());
    assert!(Command::new("true").status().unwrap().success());
}

/// Starts, prints its processes, and is killed or executes another program.
pub fn grandchild() -> ! {
    heddle::start(Options::new()).expect("process mode");
    let busy = heddle::task(|()| thread::sleep(Duration::from_secs(100)), ());
    eventually("both live", || pids().len() == 2);
    println!("{}", pids().iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
    if env::var_os("HEDDLE_TEST_EXEC").is_some() {
        let why = std::os::unix::process::CommandExt::exec(Command::new("sleep").arg("100"));
        panic!("{why}");
    }
    let _ = busy.join();
    exit(1);
}

fn is_alive(pid: u32) -> bool {
    // A zombie is not.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}

fn children_go(exec: bool) {
    let mut command = crate::command(GRANDCHILD, "process");
    if exec {
        command.env("HEDDLE_TEST_EXEC", "1");
    }
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let pids: Vec<u32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2, "{line}");
    if !exec {
        assert!(pids.iter().all(|&pid| is_alive(pid)));
        child.kill().unwrap();
    }
    eventually("they are gone", || !pids.iter().any(|&pid| is_alive(pid)));
    if exec {
        assert!(is_alive(child.id()));
        child.kill().unwrap();
    }
    child.wait().unwrap();
    // Nobody holds its output any more, the forking process included.
    output.read_to_string(&mut line).unwrap();
}

fn the_first_process_is_killed() {
    children_go(false);
}

fn the_first_process_executes() {
    children_go(true);
}

fn code_that_came_later() {
    // Code that was not there at the start: a page of ours.
    unsafe extern "C" {
        fn mmap(at: *mut u8, size: usize, prot: i32, flags: i32, file: i32, offset: i64) -> *mut u8;
    }
    // SAFETY: a new mapping, readable and writable, and then a `ret`; executable.
    let function = unsafe {
        let page = mmap(std::ptr::null_mut(), 4096, 7, 0x22, -1, 0);
        page.write(0xc3);
        std::mem::transmute::<*mut u8, fn(())>(page)
    };
    assert!(matches!(task(function, ()).join(), Err(TaskError::Function)));
}

fn a_forked_child_has_no_arena() {
    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    }
    let value = ArenaBox::new(1_u32);
    // SAFETY: the child only reads and faults, or exits.
    unsafe {
        let pid = fork();
        if pid == 0 {
            exit((&raw const *value).read_volatile() as i32);
        }
        let mut status = 0;
        assert_eq!(waitpid(pid, &raw mut status, 0), pid);
        assert_eq!(std::process::ExitStatus::from_raw(status).signal(), Some(11));
    }
    assert_eq!(*value, 1);
}

fn closures_do_not_cross() {
    let refused = heddle::Builder::new().mode(Mode::Process).spawn(|| ());
    assert!(matches!(refused, Err(SpawnError::Process)));
    // A thread is here as ever.
    assert_eq!(heddle::spawn(place).join().unwrap(), 0);
}

fn each_process_its_own_statics() {
    static HERE: AtomicU32 = AtomicU32::new(0);
    HERE.store(5, Ordering::Relaxed);
    assert_eq!(task(|()| HERE.swap(7, Ordering::Relaxed), ()).join().unwrap() % 7, 0);
    assert_eq!(HERE.load(Ordering::Relaxed), 5);
}

fn a_terminal_s_signals() {
    let begun = ArenaArc::new(AtomicU32::new(0));
    let long = |begun: ArenaArc<AtomicU32>| {
        begun.store(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(200));
        1
    };
    let handle = task(long, begun.clone());
    eventually("it is under way, and both live", || begun.load(Ordering::Relaxed) == 1 && pids().len() == 2);
    for pid in pids() {
        for signal in [1, 2, 3] {
            // SAFETY: a child's child.
            unsafe { libc_kill(pid, signal) };
        }
    }
    assert_eq!(handle.join().unwrap(), 1);
    // A program that a task executes does not find them ignored, unless this program did.
    let ignored = |()| {
        let output = Command::new("grep").args(["SigIgn", "/proc/self/status"]).output().unwrap();
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap() & 7
    };
    assert_eq!(task(ignored, ()).join().unwrap(), ignored(()));
}

/// No memory becomes executable that was not (`PR_SET_MDWE`, Linux 6.3), so system calls cannot be rewritten.
pub fn refuse_new_code() {
    unsafe extern "C" {
        fn prctl(what: i32, ...) -> i32;
    }
    // SAFETY: numbers. On an older kernel nothing happens.
    unsafe { prctl(65, 1_usize, 0_usize, 0_usize, 0_usize) };
}

fn kernel_threads_where_user_threads_are_refused() {
    println!("{:?}", heddle::mode());
    tasks_that_wait();
    threads_and_std_in_a_task();
    a_lock_of_a_dead_process();
}
