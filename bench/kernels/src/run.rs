//! Running a contender in a process of its own and collecting what it says: a line for each run, with nanoseconds, result, and
//! perhaps bytes.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::external::Programs;
use crate::kernel::{How, Kernel, Rival};

/// Longer than this and it is stopped.
const LONGEST: Duration = Duration::from_secs(120);

pub struct Sample {
    pub seconds: f64,
    pub bytes: Option<u64>,
}

/// What one contender has done so far.
pub struct Series {
    pub rival: &'static Rival,
    program: Option<PathBuf>,
    pub samples: Vec<Sample>,
    /// Why there are none.
    pub why: Option<String>,
    /// What makes it is not there.
    pub is_absent: bool,
}

impl Series {
    pub fn new(rival: &'static Rival, programs: &mut Programs) -> Self {
        let program = match rival.how {
            How::Here(_) => std::env::current_exe().map_err(|why| why.to_string()),
            How::Program(tool, source) => programs.get(tool, source),
        };
        let (program, why) = program.map_or_else(|why| (None, Some(why)), |program| (Some(program), None));
        Self { rival, is_absent: program.is_none(), program, samples: Vec::new(), why }
    }

    /// Adds one process's samples, unless it has failed before.
    pub fn round(&mut self, kernel: &Kernel, workers: usize, size: usize, runs: usize) {
        if self.why.is_none()
            && let Err(why) = self.try_round(kernel, workers, size, runs)
        {
            self.why = Some(why);
            self.samples.clear();
        }
    }

    fn try_round(&mut self, kernel: &Kernel, workers: usize, size: usize, runs: usize) -> Result<(), String> {
        let Some(program) = &self.program else { return Ok(()) };
        let mut command = Command::new(program);
        if let How::Here(_) = self.rival.how {
            command.args(["--contend", kernel.name, self.rival.name]);
        }
        command.args([workers, size, runs].map(|n| n.to_string())).args(self.rival.arguments);
        command.env("OMP_NUM_THREADS", workers.to_string()).env("GOMAXPROCS", workers.to_string());
        if self.rival.name == "chili" {
            command.env("RUST_MIN_STACK", (256 << 20).to_string());
        }
        // Deep recursion on the first thread.
        // SAFETY: only system calls between fork and exec.
        unsafe { command.pre_exec(move || bind(workers)) };
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|why| why.to_string())?;
        let mut errors = child.stderr.take().ok_or("no pipe")?;
        // What it says is short: it fits into the pipes.
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|why| why.to_string())? {
                break status;
            }
            if start.elapsed() > LONGEST {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("stopped after {} s", LONGEST.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let (mut said, mut complaints) = (String::new(), String::new());
        child.stdout.take().ok_or("no pipe")?.read_to_string(&mut said).map_err(|why| why.to_string())?;
        errors.read_to_string(&mut complaints).map_err(|why| why.to_string())?;
        if !status.success() {
            return Err(format!("{status}; {}", complaints.lines().take(3).collect::<Vec<_>>().join(" ")));
        }
        let expected = (kernel.expected)(size);
        for line in said.lines() {
            let numbers: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
            match numbers.as_deref() {
                Some([time, result, bytes @ ..]) if *result == expected => {
                    self.samples.push(Sample { seconds: *time as f64 / 1e9, bytes: bytes.first().copied() });
                }
                Some([_, result, ..]) => return Err(format!("the result is {result}, not {expected}")),
                _ => return Err(format!("it says {line:?}")),
            }
        }
        Ok(())
    }

    fn sorted(&self) -> Vec<f64> {
        let mut times: Vec<_> = self.samples.iter().map(|sample| sample.seconds).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// In seconds.
    pub fn median(&self) -> Option<f64> {
        let times = self.sorted();
        times.get(times.len() / 2).copied()
    }

    pub fn least(&self) -> f64 {
        self.sorted().first().copied().unwrap_or(f64::NAN)
    }

    pub fn most(&self) -> f64 {
        self.sorted().last().copied().unwrap_or(f64::NAN)
    }
}

/// As many CPUs as workers, so that no contender gets more by threads of its own; and a large stack.
fn bind(workers: usize) -> std::io::Result<()> {
    // SAFETY: plain system calls with locals.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&all), &raw mut all) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let mut left = workers;
        // The last ones: the first is often the one that gets the interrupts.
        for cpu in (0..libc::CPU_SETSIZE as usize).rev() {
            if libc::CPU_ISSET(cpu, &all) {
                if left == 0 {
                    libc::CPU_CLR(cpu, &mut all);
                } else {
                    left -= 1;
                }
            }
        }
        if libc::sched_setaffinity(0, size_of_val(&all), &raw const all) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let mut stack = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_STACK, &raw mut stack);
        stack.rlim_cur = stack.rlim_max.min(256 << 20);
        libc::setrlimit(libc::RLIMIT_STACK, &raw const stack);
    }
    Ok(())
}
