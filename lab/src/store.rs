//! Results on disk: one JSON line per run of a program, appended as it ends, so that an interrupted run goes on where it was.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::Error;
use crate::machine::Machine;
use crate::plan::Size;

const RESULTS: &str = "results.jsonl";
const ABOUT: &str = "about.json";

/// One run of one point's program.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Experiment.
    pub experiment: String,
    /// Curve.
    pub series: String,
    /// Where on the curve.
    pub x: f64,
    /// Which repetition, from 0.
    pub round: u32,
    /// Why it does not count; `None` for a good one.
    pub failure: Option<String>,
    /// Figures.
    pub figures: BTreeMap<String, f64>,
    /// What must agree with others of the same group.
    pub checks: BTreeMap<String, String>,
}

impl Sample {
    fn to_json(&self) -> Value {
        json!({
            "experiment": self.experiment, "series": self.series, "x": self.x, "round": self.round,
            "failure": self.failure, "figures": self.figures, "checks": self.checks,
        })
    }

    fn from_json(v: &Value) -> Option<Self> {
        let map = |name: &str| v[name].as_object().cloned().unwrap_or_else(Map::new);
        Some(Self {
            experiment: v["experiment"].as_str()?.to_owned(),
            series: v["series"].as_str()?.to_owned(),
            x: v["x"].as_f64()?,
            round: u32::try_from(v["round"].as_u64()?).ok()?,
            failure: v["failure"].as_str().map(str::to_owned),
            figures: map("figures").into_iter().filter_map(|(k, v)| Some((k, v.as_f64()?))).collect(),
            checks: map("checks").into_iter().filter_map(|(k, v)| Some((k, v.as_str()?.to_owned()))).collect(),
        })
    }
}

/// All that a folder of results holds.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    /// Which size was run.
    pub size: Size,
    /// Where.
    pub machine: Machine,
    /// When it began (seconds since 1970).
    pub began: u64,
    /// What could not be measured at all, and why: experiment and sentence.
    pub absent: Vec<(String, String)>,
    /// The samples, in the order in which they came.
    pub samples: Vec<Sample>,
}

/// The samples in a file; those that cannot be read are told on standard error, and measured again by the next run.
fn read_samples(name: &Path) -> Result<Vec<Sample>, Error> {
    let bytes = match fs::read(name) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(Error(format!("{}: {e}", name.display()))),
    };
    let mut samples = Vec::new();
    let mut damaged = 0;
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        let read = serde_json::from_slice::<Value>(line.trim_ascii_end());
        match read.as_ref().map(Sample::from_json) {
            Ok(Some(sample)) => samples.push(sample),
            // An interrupted run may have left half a line.
            Err(e) if e.is_eof() => {}
            _ => damaged += 1,
        }
    }
    if damaged > 0 {
        let (lines, are) = if damaged == 1 { ("line", "is") } else { ("lines", "are") };
        eprintln!("heddle: {}: {damaged} {lines} cannot be read and {are} left out", name.display());
    }
    Ok(samples)
}

impl Store {
    /// Opens a folder of results, or begins one. Results of another size or machine are not mixed.
    pub fn open(folder: &Path, size: Size, machine: Machine) -> Result<Self, Error> {
        if folder.join(ABOUT).exists() {
            let store = Self::load(folder)?;
            if store.size != size {
                let (there, name) = (store.size.name(), folder.display());
                return Err(Error(format!("{name} holds a {there} run; name another folder with --out")));
            }
            if !store.machine.is_same(&machine) {
                let name = folder.display();
                return Err(Error(format!("{name} holds a run on another machine; name another folder with --out")));
            }
            return Ok(store);
        }
        if folder.exists() && !folder.is_dir() {
            return Err(Error(format!("{} is not a folder; name another with --out", folder.display())));
        }
        let fail = |e| Error(format!("cannot make the folder {}: {e}; name another with --out", folder.display()));
        fs::create_dir_all(folder).map_err(fail)?;
        let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let store = Self { folder: folder.into(), size, machine, began, absent: Vec::new(), samples: Vec::new() };
        store.write_about()?;
        Ok(store)
    }

    fn write_about(&self) -> Result<(), Error> {
        let about = json!({
            "size": self.size.name(), "machine": self.machine.to_json(), "began": self.began, "absent": self.absent,
        });
        write(&self.folder.join(ABOUT), &format!("{about:#}\n"))
    }

    /// Reads a folder of results.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let name = folder.join(ABOUT);
        let text = fs::read_to_string(&name).map_err(|e| {
            Error(format!("no results in {}: {}: {e}; 'heddle lab run' makes some", folder.display(), name.display()))
        })?;
        let damaged = |why: String| {
            Error(format!(
                "{} is damaged: {why}; move {} away, or name another folder",
                name.display(),
                folder.display()
            ))
        };
        let about: Value = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
        let size = about["size"].as_str().and_then(Size::named);
        let size = size.ok_or_else(|| damaged("no size".to_owned()))?;
        if about["machine"]["cpus"].as_u64().is_none() {
            return Err(damaged("no machine".to_owned()));
        }
        let samples = read_samples(&folder.join(RESULTS))?;
        let absent = about["absent"].as_array().map_or_else(Vec::new, |list| {
            let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            list.iter().map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
        });
        Ok(Self {
            folder: folder.into(),
            size,
            machine: Machine::from_json(&about["machine"]),
            began: about["began"].as_u64().unwrap_or(0),
            absent,
            samples,
        })
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Notes that something cannot be measured here.
    pub fn note_absent(&mut self, experiment: &str, why: &str) -> Result<(), Error> {
        let note = (experiment.to_owned(), why.to_owned());
        if self.absent.contains(&note) {
            return Ok(());
        }
        self.absent.push(note);
        self.write_about()
    }

    /// Forgets what could not be measured of an experiment: it is tried again.
    pub fn forget_absent(&mut self, experiment: &str) {
        self.absent.retain(|(id, _)| id != experiment);
    }

    /// Whether this run of this point is there already.
    pub fn has(&self, experiment: &str, series: &str, x: f64, round: u32) -> bool {
        self.samples.iter().any(|s| s.round == round && s.x == x && s.series == series && s.experiment == experiment)
    }

    /// Adds one, on disk first.
    pub fn add(&mut self, sample: Sample) -> Result<(), Error> {
        let name = self.folder.join(RESULTS);
        let fail = |e: std::io::Error| Error(format!("{}: {e}", name.display()));
        let mut file: File = OpenOptions::new().create(true).append(true).open(&name).map_err(fail)?;
        // Begins with a line break where an interrupted write left none.
        let begun = fs::read(&name).map_err(fail)?;
        let before = if begun.last().is_some_and(|&b| b != b'\n') { "\n" } else { "" };
        file.write_all(format!("{before}{}\n", sample.to_json()).as_bytes()).map_err(fail)?;
        self.samples.push(sample);
        Ok(())
    }

    /// The good values of a figure at a point, round by round.
    pub fn values(&self, experiment: &str, series: &str, x: f64, metric: &str) -> Vec<f64> {
        let here = |s: &&Sample| s.experiment == experiment && s.series == series && s.x == x && s.failure.is_none();
        let mut samples: Vec<&Sample> = self.samples.iter().filter(here).collect();
        samples.sort_by_key(|s| s.round);
        samples.into_iter().filter_map(|s| s.figures.get(metric).copied()).collect()
    }

    /// Where a curve has points, in order.
    pub fn xs(&self, experiment: &str, series: &str) -> Vec<f64> {
        let mut xs: Vec<f64> = self
            .samples
            .iter()
            .filter(|s| s.experiment == experiment && s.series == series && s.failure.is_none())
            .map(|s| s.x)
            .collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }
}

/// Writes a file, or says which could not be written.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|e| Error(format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: u32) -> Sample {
        Sample {
            experiment: "e".into(),
            series: "s".into(),
            x: 2.0,
            round,
            failure: None,
            figures: [("time".to_owned(), 1.5)].into(),
            checks: [("sum".to_owned(), "18446744073709551615".to_owned())].into(),
        }
    }

    #[test]
    fn an_interrupted_run_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), Size::Tiny, Machine::read()).unwrap();
        store.add(sample(0)).unwrap();
        store.note_absent("e", "because").unwrap();
        // The power went while the next line was written.
        let mut file = OpenOptions::new().append(true).open(folder.path().join(RESULTS)).unwrap();
        file.write_all(b"{\"experiment\": \"e\", \"ser").unwrap();
        let mut store = Store::open(folder.path(), Size::Tiny, Machine::read()).unwrap();
        assert_eq!(store.samples, [sample(0)]);
        assert_eq!(store.absent.len(), 1);
        assert!(store.has("e", "s", 2.0, 0) && !store.has("e", "s", 2.0, 1));
        store.add(sample(1)).unwrap();
        let store = Store::load(folder.path()).unwrap();
        assert_eq!(store.samples, [sample(0), sample(1)]);
        assert_eq!(store.values("e", "s", 2.0, "time"), [1.5, 1.5]);
    }

    /// One byte that is not UTF-8 once made all results vanish.
    #[test]
    fn a_damaged_line_costs_that_line_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), Size::Tiny, Machine::read()).unwrap();
        store.add(sample(0)).unwrap();
        let name = folder.path().join(RESULTS);
        OpenOptions::new().append(true).open(&name).unwrap().write_all(b"{\"experiment\": \xff\n").unwrap();
        store.add(sample(1)).unwrap();
        assert_eq!(Store::load(folder.path()).unwrap().samples, [sample(0), sample(1)]);
        fs::remove_file(&name).unwrap();
        fs::create_dir(&name).unwrap();
        assert!(Store::load(folder.path()).unwrap_err().0.contains(RESULTS), "what cannot be read is not nothing");
    }

    #[test]
    fn sizes_are_not_mixed() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), Size::Tiny, Machine::read()).unwrap();
        store.note_absent("e", "because").unwrap();
        store.forget_absent("e");
        assert!(store.absent.is_empty());
        let error = Store::open(folder.path(), Size::Full, Machine::read()).unwrap_err();
        assert!(error.0.contains("--out"), "{error:?}");
        fs::write(folder.path().join(ABOUT), "{\"size\": \"tiny\"}").unwrap();
        assert!(Store::load(folder.path()).unwrap_err().0.contains("damaged: no machine"));
        assert!(Store::load(Path::new("/nonexistent")).unwrap_err().0.contains("heddle lab run"));
    }
}
