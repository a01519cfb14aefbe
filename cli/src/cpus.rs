//! How many CPUs this process may use: its CPU set and its cgroup's quota.
//!
//! The library decides for itself how many workers it starts; this module follows the same rule so that `heddle doctor` can
//! say what it will do.

use std::fs;
use std::path::{Path, PathBuf};

/// What limits the number of CPUs.
#[derive(Debug, PartialEq)]
pub struct Cpus {
    /// CPUs in this process's affinity mask (which a cpuset narrows).
    pub allowed: u64,
    /// The tightest quota of its cgroups, in CPUs.
    pub quota: Option<Quota>,
}

/// A cgroup's limit on CPU time.
#[derive(Debug, PartialEq)]
pub struct Quota {
    /// CPUs' worth of time, for example 1.5.
    pub cpus: f64,
    /// The file that sets it.
    pub file: PathBuf,
}

impl Cpus {
    /// Reads both limits.
    pub fn read() -> Self {
        let allowed = rustix::thread::sched_getaffinity(None).map_or(1, |set| u64::from(set.count()));
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self { allowed: allowed.max(1), quota: quota(Path::new("/sys/fs/cgroup"), &groups) }
    }

    /// Workers that a program gets unless it is told otherwise: the CPUs it may use, and no more than its quota, rounded up.
    pub fn workers(&self) -> u64 {
        match &self.quota {
            Some(quota) => self.allowed.min((quota.cpus.ceil() as u64).max(1)),
            None => self.allowed,
        }
    }
}

/// The tightest quota on the way from this process's group to the root; `groups` is the text of /proc/self/cgroup.
fn quota(mount: &Path, groups: &str) -> Option<Quota> {
    let mut tightest: Option<Quota> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else { continue };
        // Version 2 has one line with no controllers; version 1 has one for the cpu controller, mounted under its name.
        let second = controllers.is_empty();
        if !second && !controllers.split(',').any(|name| name == "cpu") {
            continue;
        }
        let root = if second { mount.to_owned() } else { mount.join("cpu") };
        let group = Path::new(group.trim_start_matches('/'));
        for folder in group.ancestors() {
            let found = if second { quota_v2(&root.join(folder)) } else { quota_v1(&root.join(folder)) };
            if let Some(found) = found
                && tightest.as_ref().is_none_or(|tightest| found.cpus < tightest.cpus)
            {
                tightest = Some(found);
            }
        }
    }
    tightest
}

fn quota_v2(folder: &Path) -> Option<Quota> {
    let file = folder.join("cpu.max");
    let text = fs::read_to_string(&file).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    Some(Quota { cpus: ratio(quota, period)?, file })
}

fn quota_v1(folder: &Path) -> Option<Quota> {
    let file = folder.join("cpu.cfs_quota_us");
    let quota = fs::read_to_string(&file).ok()?;
    let period = fs::read_to_string(folder.join("cpu.cfs_period_us")).ok()?;
    Some(Quota { cpus: ratio(quota.trim(), period.trim())?, file })
}

/// `None` when there is no limit ("max" in version 2, a negative quota in version 1).
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }

    #[test]
    fn the_tightest_group_of_version_2_counts() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("a/b"), "cpu.max", "max 100000\n");
        write(&dir.path().join("a"), "cpu.max", "150000 100000\n");
        let quota = quota(dir.path(), "0::/a/b\n").unwrap();
        assert_eq!(quota, Quota { cpus: 1.5, file: dir.path().join("a/cpu.max") });
        assert_eq!(Cpus { allowed: 8, quota: Some(quota) }.workers(), 2);
    }

    #[test]
    fn version_1_has_its_own_files() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("cpu/box");
        write(&group, "cpu.cfs_quota_us", "50000\n");
        write(&group, "cpu.cfs_period_us", "100000\n");
        let quota = quota(dir.path(), "3:cpuset:/\n2:cpu,cpuacct:/box\n").unwrap();
        assert_eq!(quota.cpus, 0.5);
        assert_eq!(Cpus { allowed: 8, quota: Some(quota) }.workers(), 1);
    }

    #[test]
    fn no_quota_leaves_the_affinity_mask() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "cpu.cfs_quota_us", "-1\n");
        assert_eq!(quota(dir.path(), "0::/\n1:cpu:/\n"), None);
        assert_eq!(Cpus { allowed: 3, quota: None }.workers(), 3);
        assert!(Cpus::read().allowed >= 1);
    }
}
