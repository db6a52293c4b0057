//! Storage that fails or is not what it should be, with real processes on real file systems: cases D01 to D05 of the
//! fault list. Runs that are killed are in `crashes.rs`, those that are stopped in `stops.rs`.
//!
//! | module | kind of fault |
//! | --- | --- |
//! | `full_disk` | D01: no space at the start, during a run, for an export; a device that runs out of blocks |
//! | `power_loss` | D05: a file system that forgets what was not synced |
//! | `read_only` | D01: a file system that turns read-only under a run, or is read-only from the start |
//! | `file_systems` | D02: without direct I/O, in RAM, an overlay, with large sectors |
//! | `uring` | D03: io_uring forbidden or hidden, little lockable memory |
//! | `memory_group` | D04: a control group that bounds memory |

mod file_systems;
mod full_disk;
mod memory_group;
mod power_loss;
mod read_only;
mod uring;

use mt_tests::command::Place;
use mt_tests::small::{self, Small};
use mt_tests::tensors::Tensors;
use serde_json::json;

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");
const RESTRICTED: &str = env!("CARGO_BIN_EXE_restricted");

/// Steps of a run that goes to its end.
const STEPS: u64 = 6;

/// A folder with a model in `m` whose pages do not all fit the RAM of [`train`], and text in `t.txt`. Matrices with a
/// side of 63 and vectors of 63 elements do not fill whole sectors.
fn place() -> Place {
    let place = Place::new(MT);
    let changes = json!({"num_hidden_layers": 16, "vocab_size": 4096, "intermediate_size": 63});
    place.model("m", &Small::with(4, changes));
    place.write("t.txt", small::text(1, 40_000));
    place
}

/// A run that streams, and commits every step.
fn train(run: &str, steps: u64) -> String {
    format!(
        "train --model m --data t.txt --seq-len 64 --batch 4 --micro-batch 2 --lr 1e-3 --warmup 2 --threads 2 \
         --ram 26MiB --checkpoint-every 1 --steps {steps} --run {run}"
    )
}

/// What a run that nothing happened to gives.
struct Whole {
    losses: Vec<f64>,
    weights: Tensors,
}

impl Whole {
    fn new(place: &Place) -> Whole {
        let done = place.ok(&train("whole", STEPS));
        assert_eq!(done.notices(), [""; 0], "an ordinary folder gives nothing to say: {done}");
        let read = |line: &serde_json::Value| line["disk_read_bytes"].as_u64().expect("a number");
        assert!(place.metrics("whole").iter().skip(1).all(|line| read(line) > 1 << 20), "the run streams");
        Whole { losses: place.losses("whole"), weights: place.weights("whole") }
    }

    /// The run is at its end and has the same numbers.
    fn equals(&self, place: &Place, run: &str) {
        assert_eq!(place.losses(run), self.losses, "losses of {run}");
        place.ok(&format!("verify {run}"));
        assert!(place.weights(run).bits() == self.weights.bits(), "weights of {run}");
    }
}

/// Names in a folder.
fn names(folder: &std::path::Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|e| e.file_name().into_string().expect("a UTF-8 name")).collect();
    names.sort();
    names
}
