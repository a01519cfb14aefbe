//! The demo's child processes: started on either side, read line by line, never waited for without end.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// A child that is silent, or does not end, for this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a running child's kernel threads are counted.
const GLANCE: Duration = Duration::from_millis(20);

/// The demo's programs, on disk.
pub struct Demo {
    /// The echo server and its load.
    pub echo_server: PathBuf,
    /// The thread figures.
    pub threads: PathBuf,
}

/// What a program's threads run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel's threads.
    Nptl,
    /// Heddle's.
    Heddle,
}

impl Display for Side {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Nptl => "on NPTL",
            Side::Heddle => "under Heddle",
        })
    }
}

/// A running program. Its stdin stays open until it is asked to finish.
pub struct Child {
    name: String,
    process: process::Child,
    lines: Receiver<String>,
    complaints: Receiver<String>,
}

impl Drop for Child {
    fn drop(&mut self) {
        // Harmless when it has ended; otherwise the demo failed and must not leave it behind.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Child {
    /// Starts `program`, called `name` in messages; both sides go through `heddle run`, so that they differ in the mode only.
    pub fn start(side: Side, name: String, program: &Path, args: &[&str]) -> Result<Self, Failure> {
        let mode = match side {
            Side::Nptl => "--mode=kernel",
            Side::Heddle => "--mode=user",
        };
        let mut process = Command::new("/proc/self/exe")
            .arg0("heddle")
            .args(["run", mode, "--"])
            .arg(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::own(format!("{name}: cannot be started: {e}")))?;
        let lines = read_lines(process.stdout.take().map(Output::Out));
        let complaints = read_lines(process.stderr.take().map(Output::Err));
        Ok(Self { name, process, lines, complaints })
    }

    /// The next line of its output.
    pub fn line(&mut self) -> Result<String, Failure> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(self.stuck()),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.wait()?;
                Err(self.failed(status))
            }
        }
    }

    /// Closes its stdin and waits for its end, which must be a success; the rest of its output.
    pub fn finish(&mut self) -> Result<Vec<String>, Failure> {
        drop(self.process.stdin.take());
        let status = self.wait()?;
        if !status.success() {
            return Err(self.failed(status));
        }
        Ok(self.lines.iter().collect())
    }

    /// Counts this program's kernel threads while `other` runs; the most that were seen.
    pub fn most_threads_until_ended(&mut self, other: &mut Child) -> Result<u64, Failure> {
        let tasks = format!("/proc/{}/task", self.process.id());
        let deadline = Instant::now() + PATIENCE;
        let mut most = 0;
        while other.ended()?.is_none() {
            most = most.max(fs::read_dir(&tasks).map_or(0, |tasks| tasks.count() as u64));
            if let Some(status) = self.ended()? {
                return Err(self.failed(status));
            }
            if Instant::now() > deadline {
                return Err(self.stuck());
            }
            thread::sleep(GLANCE);
        }
        Ok(most)
    }

    /// Why this program is no longer there, if it failed. The failure of another may have come before it was noticed.
    pub fn death(&mut self) -> Option<Failure> {
        thread::sleep(GLANCE);
        let status = self.ended().ok()??;
        (!status.success()).then(|| self.failed(status))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.process.try_wait().map_err(|e| Failure::own(format!("{}: {e}", self.name)))
    }

    fn wait(&mut self) -> Result<ExitStatus, Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(self.stuck());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn stuck(&mut self) -> Failure {
        Failure::own(format!("the demo failed: {} made no progress for {} s", self.name, PATIENCE.as_secs()))
    }

    /// Says how it ended, with the last thing it said itself.
    fn failed(&mut self, status: ExitStatus) -> Failure {
        let how = match (status.signal(), status.code()) {
            (Some(signal), _) => format!("was killed by signal {signal}"),
            (None, Some(code)) => format!("ended with status {code}"),
            (None, None) => "ended".to_owned(),
        };
        let last = self.complaints.iter().last().map(|line| format!(": {line}")).unwrap_or_default();
        Failure::own(format!("the demo failed: {} {how}{last}", self.name))
    }
}

/// One of a child's two outputs.
enum Output {
    Out(ChildStdout),
    Err(ChildStderr),
}

/// Reads an output in a thread of its own, which ends with it.
fn read_lines(output: Option<Output>) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let reader: Box<dyn Read> = match output {
            Some(Output::Out(out)) => Box::new(out),
            Some(Output::Err(err)) => Box::new(err),
            None => return,
        };
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}
