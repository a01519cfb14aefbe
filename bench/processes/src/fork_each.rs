//! By a fork for each task; the result comes by a pipe. The process is small: a larger one takes longer to fork.

use std::io::{Read, Write, pipe};
use std::time::Duration;

pub fn there_and_back() -> f64 {
    super::measure(Duration::from_millis(300), 1, |n| {
        let (mut hear, mut answer) = pipe().expect("a pipe");
        // SAFETY: this process has one thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let done = answer.write_all(&(n + 1).to_ne_bytes()).is_ok();
            // SAFETY: nothing to clean up.
            unsafe { libc::_exit(i32::from(!done)) };
        }
        drop(answer);
        let mut bytes = [0; 8];
        hear.read_exact(&mut bytes).expect("an answer");
        assert_eq!(u64::from_ne_bytes(bytes), n + 1);
        let mut status = 0;
        // SAFETY: a child of ours, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    })
}
