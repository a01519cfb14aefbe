//! Memory that was shared before the start is shared afterwards: locks in it work between processes. In a process of its own, since
//! it starts user threads and forks.

use std::mem::MaybeUninit;
use std::ptr;

use heddle::{Mode, Options};

/// In memory that two processes have.
struct Shared {
    mutex: libc::pthread_mutex_t,
    turns: [libc::sem_t; 2],
    count: u64,
}

const ROUNDS: u64 = 200;

/// One of the two: rounds in turn, then a lock that both want.
unsafe fn play(shared: *mut Shared, mine: usize) {
    // SAFETY: the memory stays, and its locks have been made; the count is under one of them.
    unsafe {
        for _ in 0..ROUNDS {
            assert_eq!(libc::sem_wait(&raw mut (*shared).turns[mine]), 0);
            assert_eq!(libc::sem_post(&raw mut (*shared).turns[1 - mine]), 0);
        }
        for _ in 0..ROUNDS {
            assert_eq!(libc::pthread_mutex_lock(&raw mut (*shared).mutex), 0);
            let count = (&raw mut (*shared).count).read_volatile();
            libc::usleep(20);
            (&raw mut (*shared).count).write_volatile(count + 1);
            assert_eq!(libc::pthread_mutex_unlock(&raw mut (*shared).mutex), 0);
        }
    }
}

fn main() {
    // SAFETY: new memory, initialised before it is used; the child ends in here.
    unsafe {
        libc::alarm(30);
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let memory = libc::mmap(ptr::null_mut(), size_of::<Shared>(), prot, flags, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        let shared: *mut Shared = memory.cast();
        let mut attr = MaybeUninit::uninit();
        assert_eq!(libc::pthread_mutexattr_init(attr.as_mut_ptr()), 0);
        assert_eq!(libc::pthread_mutexattr_setpshared(attr.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED), 0);
        assert_eq!(libc::pthread_mutex_init(&raw mut (*shared).mutex, attr.as_ptr()), 0);
        assert_eq!(libc::sem_init(&raw mut (*shared).turns[0], 1, 1), 0);
        assert_eq!(libc::sem_init(&raw mut (*shared).turns[1], 1, 0), 0);

        heddle::start(Options::new().mode(Mode::User).workers(2)).unwrap();
        assert_eq!(heddle::mode(), Mode::User);
        let child = libc::fork();
        if child == 0 {
            libc::alarm(30);
            play(shared, 1);
            libc::_exit(0);
        }
        let here = shared as usize;
        heddle::spawn(move || play(here as *mut Shared, 0)).join().unwrap();
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
        assert_eq!((*shared).count, 2 * ROUNDS);
    }
    println!("shared before the start: ok");
}
