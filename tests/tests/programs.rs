//! The corpus: each program of `tests/programs` run on NPTL and under `heddle run`, with equal output.
//!
//! One test per program, `LANGUAGE::NAME`, from the table below. A program says in its head comment what it asserts.

mod harness;

use harness::Language;

/// `language folder variant { name { field: value, ... } ... }`: one test for each name.
macro_rules! programs {
    ($($module:ident $language:ident { $($name:ident $({ $($field:ident: $value:expr),* })?),* $(,)? })*) => {
        $(mod $module {
            use crate::harness::{Language, Program};
            $(#[test]
            fn $name() {
                Program { $($($field: $value,)*)? ..Program::new(Language::$language, stringify!($name)) }.test();
            })*
        })*

        const LISTED: &[(Language, &[&str])] = &[$((Language::$language, &[$(stringify!($name)),*])),*];
    };
}

programs! {
    c C {
        accept_crowd { workers: &[2, 1, 4] },
        accept_signals { workers: &[2, 1, 4] },
        affinity { workers: &[2, 1, 4] },
        aio,
        backtrace { workers: &[2, 1] },
        barrier { workers: &[2, 1] },
        busy_reader { workers: &[1, 2] },
        c11_threads,
        call_storm { workers: &[2, 4] },
        cancel { workers: &[2, 1] },
        clone_raw { workers: &[2, 1] },
        close_under_waiter { workers: &[2, 1] },
        code_of_its_own { workers: &[2, 1] },
        cond { workers: &[2, 1, 4] },
        constructors { workers: &[2, 1] },
        cpu_clocks { workers: &[2, 1] },
        cpu_timers { workers: &[2, 1] },
        create_join_storm { workers: &[2, 1, 4] },
        credentials { workers: &[2, 1, 4] },
        credentials_own { workers: &[2, 1, 4] },
        dlopen_tls { shared: &["dlopen_tls_lib"] },
        epoll { workers: &[2, 1] },
        eventfd_timerfd,
        exec_pending { workers: &[2, 1] },
        exit_kinds { workers: &[2, 1] },
        fenv { workers: &[2, 1] },
        files,
        fs_base { workers: &[2, 1, 4] },
        fork_exec { workers: &[2, 1] },
        fork_from_vfork { workers: &[2, 1, 4] },
        futex_raw { workers: &[2, 1] },
        futex_shared_process { workers: &[2, 1] },
        getaddrinfo,
        gs_base { workers: &[2, 1, 4] },
        identity { workers: &[2, 1, 4] },
        io_uring { workers: &[2, 1] },
        kernel_locks { workers: &[2, 1] },
        less_usual_calls { workers: &[2, 1] },
        many_threads { heavy: true },
        many_waits { heavy: true, workers: &[2, 1] },
        mmap_stack_reuse,
        mutex_kinds { workers: &[2, 1, 4] },
        mutex_pi,
        mutex_robust { workers: &[2, 1] },
        names { workers: &[2, 1] },
        odd_stack_pointer { workers: &[1, 2] },
        near_peers { workers: &[2, 1, 4] },
        nice_alone { workers: &[2, 1] },
        nonblocking_signals { workers: &[2, 1, 4] },
        once { workers: &[2, 1] },
        other_waits { workers: &[2, 1] },
        passed_on { workers: &[2, 1] },
        phases { workers: &[2, 1, 4] },
        pipes { workers: &[2, 1] },
        poll_drained { workers: &[2, 1, 4] },
        poll_select { workers: &[2, 1] },
        protection_keys { workers: &[2, 1] },
        producers { workers: &[2, 1, 4] },
        pty { workers: &[2, 1] },
        robust_processes { workers: &[2, 1, 4] },
        rwlock { workers: &[2, 1] },
        sched_attributes { workers: &[2, 1] },
        sched_calls,
        sem { workers: &[2, 1] },
        signals_before_wakes { workers: &[2, 1, 4] },
        signals_direct { workers: &[2, 1] },
        signals_eintr { workers: &[2, 1] },
        signals_eintr_crowd { workers: &[2, 1, 4] },
        signals_elsewhere { workers: &[2, 1] },
        signals_fault { workers: &[2, 1] },
        signals_fifo { workers: &[2, 1, 4] },
        signals_flood { workers: &[2, 1, 4] },
        signals_ignored { workers: &[2, 1, 4] },
        signals_into_calls { workers: &[2, 1] },
        signals_order { workers: &[2, 1, 4] },
        signals_other_process { workers: &[2, 1, 4] },
        signals_nested { workers: &[2, 1, 4] },
        signals_never { workers: &[2, 1] },
        signals_no_handler { workers: &[2, 1, 4] },
        signals_process { workers: &[2, 1] },
        signals_kept { workers: &[2, 1, 4] },
        signals_limit { workers: &[2, 1] },
        signals_queue { workers: &[2, 1, 4] },
        signals_queued_before_wakes { workers: &[2, 1, 4] },
        signals_stop { workers: &[2, 1, 4] },
        signals_trapped { workers: &[2, 1, 4] },
        signals_whom { workers: &[2, 1, 4] },
        sleep { workers: &[2, 1] },
        sleepers { heavy: true },
        small_stacks { heavy: true },
        sockets { workers: &[2, 1] },
        spin { workers: &[2, 1] },
        spin_flag { workers: &[2, 1] },
        spin_helpers { workers: &[2, 1] },
        spin_rounds { workers: &[2, 1] },
        stack_attr,
        stack_slabs { workers: &[2, 1, 4] },
        static_tls { shared: &["static_tls_lib"] },
        stdio_many,
        stream_end,
        task_folder { workers: &[2, 1] },
        thread_limits,
        tracer { workers: &[2, 1] },
        transfers { workers: &[2, 1] },
        flags { workers: &[2, 1] },
        unmapped { workers: &[2, 1, 4] },
        untouched_stack,
        vector_regs { workers: &[2, 1, 4] },
        vfork_killed { workers: &[2, 1] },
        vfork_waits { workers: &[2, 1, 4] },
        wait_child { workers: &[2, 1] },
        wake_order { workers: &[2, 1, 4] },
        yield_and_compute { workers: &[2, 1] },
        yield_pairs { workers: &[2, 1, 4] },
    }
    cpp Cpp {
        cancel_unwinds,
        concurrency { workers: &[2, 1] },
        exceptions { workers: &[2, 1] },
        thread_local_objects { workers: &[2, 1] },
    }
    openmp OpenMp {
        nested { env: &[("OMP_NUM_THREADS", "8")] },
        regions { workers: &[2, 1, 4], env: &[("OMP_NUM_THREADS", "8")] },
    }
    rust Rust {
        channels { workers: &[2, 1] },
        locks { workers: &[2, 1, 4] },
        net { workers: &[2, 1] },
        threads { workers: &[2, 1] },
    }
    python Python {
        compute { workers: &[2, 1] },
        executors,
        loops,
        processes,
        servers,
        threads { workers: &[2, 1, 4] },
    }
}

/// A program nobody runs, or a test whose program is gone, is a mistake.
#[test]
fn every_program_is_listed() {
    /// Sources that are parts of other programs.
    const PARTS: &[&str] = &["dlopen_tls_lib", "static_tls_lib"];
    for &(language, names) in LISTED {
        let (folder, extension) = language.place();
        let dir = harness::programs_dir().join(folder);
        let mut found: Vec<String> = std::fs::read_dir(&dir)
            .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
            .map(|entry| entry.expect("directory entry").path())
            .filter(|path| path.extension().is_some_and(|e| e == extension))
            .map(|path| path.file_stem().expect("stem").to_string_lossy().into_owned())
            .filter(|name| !PARTS.contains(&name.as_str()))
            .collect();
        found.sort();
        let mut listed = names.to_vec();
        listed.sort_unstable();
        assert_eq!(found, listed, "{}", dir.display());
    }
}
