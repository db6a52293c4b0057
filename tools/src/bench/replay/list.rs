//! An access pattern as a list that belongs to no engine: `tools/replay-schedule.md` describes the file.
//!
//! Terms: *row*, one use of a run: its bytes, what is done with them, and how long is computed with them; a row that
//! computes nothing is held until the next one that does has ended. *Pass*, the whole list once; it repeats.

use crate::failure::Failure;
use mt_engine::{Kind, Mode, RegionId, RegionSpec, Resource, Run, Schedule};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// Version of the file.
pub const VERSION: u32 = 1;

/// Bytes of a page: runs are rounded up to it.
pub const PAGE_BYTES: u32 = 64 << 10;

/// A list of uses.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Version of the file.
    pub version: u32,
    /// What it is, in a few words.
    pub name: String,
    /// Where it comes from, and what its times were computed with.
    #[serde(default)]
    pub about: String,
    /// In the order of execution.
    pub rows: Vec<Row>,
}

/// A use of a run: name, bytes, what is done, microseconds of computation with it, where it is wanted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row(pub String, pub u64, pub Access, pub f64, pub Place);

/// What is done with the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// They are read.
    Read,
    /// All of them are replaced.
    Write,
    /// They are read and changed.
    Update,
}

/// Where they are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// In RAM.
    Host,
    /// In the memory of a GPU.
    Device,
}

impl Access {
    /// As the engine says it.
    pub fn mode(self) -> Mode {
        match self {
            Access::Read => Mode::Read,
            Access::Write => Mode::Write,
            Access::Update => Mode::Update,
        }
    }
}

impl List {
    /// Reads a list.
    ///
    /// # Errors
    /// It is none, of another version, or contradicts itself (exit code 2); `place` is named.
    pub fn parse(text: &str, place: &str) -> Result<List, Failure> {
        let refuse = |what: String| Failure::input(format!("{place}: {what}"));
        let list: List = serde_json::from_str(text).map_err(|e| refuse(format!("expected a schedule, found {e}")))?;
        if list.version != VERSION {
            return Err(refuse(format!("version: expected {VERSION}, found {}", list.version)));
        }
        if list.rows.is_empty() {
            return Err(refuse("rows: expected at least one".to_owned()));
        }
        let mut known: HashMap<&str, u64> = HashMap::new();
        for (index, Row(run, bytes, _, us, _)) in list.rows.iter().enumerate() {
            if *bytes == 0 || !us.is_finite() || *us < 0.0 {
                return Err(refuse(format!("row {}: expected bytes above 0 and a time of at least 0", index + 1)));
            }
            if *known.entry(run).or_insert(*bytes) != *bytes {
                return Err(refuse(format!("row {}: {run} has other bytes than before", index + 1)));
            }
        }
        Ok(list)
    }

    /// Reads a file, or one that is shipped by its name.
    ///
    /// # Errors
    /// As [`List::parse`]; the file cannot be read.
    pub fn read(path: &Path) -> Result<List, Failure> {
        if let Some((name, text)) = super::shipped::find(path) {
            return List::parse(text, name);
        }
        let expected = format!("a schedule, or one that is shipped ({})", super::shipped::names());
        let text = mt_trainer::input::text(path, &expected)?;
        List::parse(&text, &path.display().to_string())
    }

    /// The same with every run and time multiplied.
    pub fn scaled(mut self, factor: f64) -> List {
        for Row(_, bytes, _, us, _) in &mut self.rows {
            *bytes = ((*bytes as f64 * factor) as u64).max(1);
            *us *= factor;
        }
        self
    }

    /// One row a line, so that differences show.
    #[cfg(test)]
    pub fn to_json(&self) -> String {
        let rows: Vec<String> = self.rows.iter().map(json).collect();
        format!(
            "{{\"version\": {}, \"name\": {}, \"about\": {}, \"rows\": [\n{}\n]}}\n",
            self.version,
            json(&self.name),
            json(&self.about),
            rows.join(",\n")
        )
    }

    /// As the engine takes it.
    pub fn to_engine(&self) -> Replay {
        let mut runs: HashMap<&str, Run> = HashMap::new();
        let mut order = Vec::new();
        let mut next = 0;
        let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
        let (mut held, mut steps) = (Vec::new(), Vec::new());
        for (index, Row(name, bytes, access, us, _)) in self.rows.iter().enumerate() {
            let run = *runs.entry(name).or_insert_with(|| {
                let count = bytes.div_ceil(PAGE_BYTES.into()) as u32;
                let run = Run { region: RegionId(0), first: next, count };
                next += count;
                order.push(run);
                run
            });
            held.push(schedule.access(run, access.mode(), index as u64));
            let is_last = index + 1 == self.rows.len();
            let ns = (us * 1e3) as u64;
            if ns > 0 || is_last {
                schedule.work(Resource::HostCompute, ns, std::mem::take(&mut held), index as u64);
            }
            steps.push(Step { run, mode: access.mode(), ns, computes: ns > 0 || is_last });
        }
        let regions =
            vec![RegionSpec { name: "runs".to_owned(), page_bytes: PAGE_BYTES, pages: next, kind: Kind::Scratch }];
        Replay { regions, runs: order, schedule, steps }
    }
}

#[cfg(test)]
fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("text and numbers")
}

/// A list as the engine takes it.
pub struct Replay {
    /// One region with all runs.
    pub regions: Vec<RegionSpec>,
    /// Each run once, in the order of first use.
    pub runs: Vec<Run>,
    /// The schedule of a pass.
    pub schedule: Schedule,
    /// The rows as they are executed.
    pub steps: Vec<Step>,
}

/// A row as it is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The pages.
    pub run: Run,
    /// What is done with them.
    pub mode: Mode,
    /// Computation.
    pub ns: u64,
    /// What is held is given back after it.
    pub computes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"version": 1, "name": "two", "about": "", "rows": [
["a", 100000, "read", 0, "host"],
["b", 65536, "update", 12.5, "device"],
["a", 100000, "write", 1, "host"]
]}"#;

    #[test]
    fn rows_become_accesses_held_until_something_is_computed() {
        let list = List::parse(TEXT, "x").unwrap();
        assert_eq!(List::parse(&list.to_json(), "x").unwrap(), list);
        let replay = list.to_engine();
        assert_eq!(replay.regions[0].pages, 3, "two pages and one");
        assert_eq!(replay.schedule.nodes.len(), 5, "three accesses and two pieces of work");
        assert_eq!(replay.schedule.after[2], [0, 1]);
        assert_eq!(replay.steps.iter().map(|step| step.computes).collect::<Vec<_>>(), [false, true, true]);
        assert_eq!(replay.steps[0].run, replay.steps[2].run);
        let half = list.scaled(0.5);
        assert_eq!((half.rows[1].1, half.rows[1].3), (32_768, 6.25));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (from, to, part) in [
            ("\"version\": 1", "\"version\": 2", "version"),
            ("[\"a\", 100000, \"write\"", "[\"a\", 100001, \"write\"", "other bytes"),
            ("65536", "0", "above 0"),
            ("\"update\"", "\"borrow\"", "expected a schedule"),
        ] {
            let text = TEXT.replace(from, to);
            assert_ne!(text, TEXT);
            let refused = List::parse(&text, "x").unwrap_err();
            assert!(refused.text.contains(part) && refused.code == 2, "{}", refused.text);
        }
    }
}
