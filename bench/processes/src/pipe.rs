//! By two pipes, to a process that was forked before.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::process::exit;
use std::time::Duration;

fn answer(mut questions: PipeReader, mut answers: PipeWriter) -> ! {
    let mut bytes = [0; 8];
    while questions.read_exact(&mut bytes).is_ok() {
        let answer = u64::from_ne_bytes(bytes) + 1;
        if answers.write_all(&answer.to_ne_bytes()).is_err() {
            break;
        }
    }
    exit(0);
}

pub fn there_and_back() -> f64 {
    let (questions, mut ask) = pipe().expect("a pipe");
    let (mut hear, answers) = pipe().expect("a pipe");
    // SAFETY: this process has one thread.
    if unsafe { libc::fork() } == 0 {
        drop((ask, hear));
        answer(questions, answers);
    }
    drop((questions, answers));
    super::measure(Duration::from_millis(300), 1, |n| {
        ask.write_all(&n.to_ne_bytes()).expect("a reader");
        let mut bytes = [0; 8];
        hear.read_exact(&mut bytes).expect("an answer");
        assert_eq!(u64::from_ne_bytes(bytes), n + 1);
    })
}
