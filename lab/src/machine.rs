//! What the machine is: for the report, and for the claims that only some machines can test.

use std::ffi::CStr;
use std::fs;

use serde_json::{Value, json};

/// The machine, as far as the experiments depend on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Processor's name.
    pub cpu: String,
    /// Processor's maker, as the processor says it.
    pub vendor: String,
    /// CPUs this process may use.
    pub cpus: u64,
    /// Sockets.
    pub sockets: u64,
    /// Caches of the first CPU, in words.
    pub caches: String,
    /// Kernel's release.
    pub kernel: String,
    /// C library's version.
    pub glibc: String,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// Memory that is free for programs, in MiB.
    pub available_mib: u64,
    /// Transparent huge pages: always, madvise or never.
    pub thp: String,
    /// Huge pages that are reserved and free.
    pub huge_pages: u64,
    /// Whether it is a virtual machine, as far as the processor says.
    pub virtual_machine: bool,
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn mib(meminfo: &str, name: &str) -> u64 {
    field(meminfo, name).and_then(|v| v.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn caches() -> String {
    let mut caches = Vec::new();
    for i in 0..8 {
        let get = |name: &str| read(&format!("/sys/devices/system/cpu/cpu0/cache/index{i}/{name}"));
        let (level, kind, size) = (get("level"), get("type"), get("size"));
        if !size.is_empty() {
            let letter = if kind == "Data" {
                "d"
            } else if kind == "Instruction" {
                "i"
            } else {
                ""
            };
            caches.push(format!("L{level}{letter} {size}"));
        }
    }
    caches.join(", ")
}

impl Machine {
    /// Looks at the machine at hand.
    pub fn read() -> Self {
        let (info, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let mut sockets: Vec<&str> =
            info.lines().filter(|l| l.starts_with("physical id")).filter_map(|l| l.split(':').nth(1)).collect();
        sockets.sort_unstable();
        sockets.dedup();
        let thp = read("/sys/kernel/mm/transparent_hugepage/enabled");
        let thp = thp.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("not there");
        // SAFETY: gnu_get_libc_version answers a string that is never freed.
        let glibc = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        Self {
            cpu: field(&info, "model name").unwrap_or("unknown").to_owned(),
            vendor: field(&info, "vendor_id").unwrap_or("unknown").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            sockets: (sockets.len() as u64).max(1),
            caches: caches(),
            kernel: read("/proc/sys/kernel/osrelease"),
            glibc: glibc.to_string_lossy().into_owned(),
            memory_mib: mib(&memory, "MemTotal"),
            available_mib: mib(&memory, "MemAvailable"),
            thp: thp.to_owned(),
            huge_pages: field(&memory, "HugePages_Free").and_then(|v| v.parse().ok()).unwrap_or(0),
            virtual_machine: field(&info, "flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor")),
        }
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "cpu": self.cpu, "vendor": self.vendor, "cpus": self.cpus, "sockets": self.sockets, "caches": self.caches,
            "kernel": self.kernel, "glibc": self.glibc, "memory_mib": self.memory_mib,
            "available_mib": self.available_mib, "thp": self.thp, "huge_pages": self.huge_pages,
            "virtual_machine": self.virtual_machine,
        })
    }

    /// From JSON; what is missing is empty.
    pub fn from_json(v: &Value) -> Self {
        let text = |name: &str| v[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| v[name].as_u64().unwrap_or_default();
        Self {
            cpu: text("cpu"),
            vendor: text("vendor"),
            cpus: number("cpus"),
            sockets: number("sockets"),
            caches: text("caches"),
            kernel: text("kernel"),
            glibc: text("glibc"),
            memory_mib: number("memory_mib"),
            available_mib: number("available_mib"),
            thp: text("thp"),
            huge_pages: number("huge_pages"),
            virtual_machine: v["virtual_machine"].as_bool().unwrap_or_default(),
        }
    }

    /// Whether two runs on them may be compared as runs on one machine.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.cpu, self.cpus, self.memory_mib) == (&other.cpu, other.cpus, other.memory_mib)
    }

    /// Name and value of each property, for people.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let sockets = if self.sockets == 1 { "1 socket".to_owned() } else { format!("{} sockets", self.sockets) };
        vec![
            ("Processor", format!("{} ({}), {} CPUs, {sockets}", self.cpu, self.vendor, self.cpus)),
            ("Caches", self.caches.clone()),
            ("Memory", format!("{} MiB, {} MiB available at the start", self.memory_mib, self.available_mib)),
            ("Kernel", format!("Linux {}", self.kernel)),
            ("C library", format!("glibc {}", self.glibc)),
            ("Transparent huge pages", self.thp.clone()),
            ("Reserved huge pages", self.huge_pages.to_string()),
            ("Virtual machine", if self.virtual_machine { "yes" } else { "no" }.to_owned()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_json() {
        let machine = Machine::read();
        assert!(machine.cpus >= 1 && !machine.kernel.is_empty());
        assert_eq!(Machine::from_json(&machine.to_json()), machine);
    }
}
