//! Stop signals (D05): the first ends a run at a resumable point with exit code 130, the second at once; whatever the
//! process is doing, the run then goes on to the very same numbers.

use mt_tests::command::{Live, Place};
use mt_tests::small::{self, Normal, Small};
use mt_tests::tensors::Tensors;
use rustix::process::Signal;
use std::time::{Duration, Instant};

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");
const STEPS: u64 = 12;

struct Whole {
    place: Place,
    losses: Vec<f64>,
    weights: Tensors,
    took: Duration,
}

impl Whole {
    /// A run that nobody stopped.
    fn new() -> Whole {
        let place = Place::new(MT);
        // Large enough for the import to take its time.
        place.model("m", &Small::with(4, serde_json::json!({"num_hidden_layers": 24, "vocab_size": 4096})));
        place.write("t.txt", small::text(1, 40_000));
        let started = Instant::now();
        place.ok(&train("whole"));
        let took = started.elapsed();
        Whole { losses: place.losses("whole"), weights: place.weights("whole"), took, place }
    }

    /// Brings a stopped run to its end and compares it.
    fn equals(&self, run: &str) {
        if self.place.path(run).join("settings.toml").exists() {
            self.place.ok(&format!("resume {run}"));
        } else {
            self.place.ok(&train(run));
        }
        assert_eq!(self.place.losses(run), self.losses, "losses of {run}");
        assert!(self.place.weights(run).bits() == self.weights.bits(), "weights of {run}");
    }
}

fn train(run: &str) -> String {
    format!(
        "train --model m --data t.txt --seq-len 64 --batch 4 --micro-batch 2 --lr 1e-3 --warmup 2 --threads 2 \
         --ram 36MiB --checkpoint-every 1 --steps {STEPS} --run {run}"
    )
}

/// Whether a file comes up before the process ends.
fn comes_up(place: &Place, file: &str, live: &Live) -> bool {
    while !place.path(file).exists() {
        if !std::path::Path::new(&format!("/proc/{}/fd/0", live.pid())).exists() {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}

#[test]
fn a_signal_during_the_import_ends_the_run_where_it_can_be_resumed() {
    let whole = Whole::new();
    let place = &whole.place;
    let live = place.live(&format!("{} --json", train("r")));
    assert!(comes_up(place, "r/store/volume.mt", &live), "the store is made");
    live.signal(Signal::TERM);
    let done = live.finish();
    assert_eq!(done.code, Some(130), "{done}");
    assert!(done.err.contains("a second signal ends at once"), "{done}");
    let steps = if place.path("r/metrics.jsonl").exists() { place.metrics("r").len() } else { 0 };
    assert!(done.out.contains("mt resume r") && steps <= 1, "at the first boundary after it: {done}");
    whole.equals("r");
}

#[test]
fn a_signal_at_any_moment_ends_the_run_at_a_commit() {
    let whole = Whole::new();
    let place = &whole.place;
    let mut random = Normal::new(14);
    for round in 0..8 {
        let run = format!("r{round}");
        let live = place.live(&format!("{} --json", train(&run)));
        std::thread::sleep(whole.took.mul_f64(random.uniform()));
        live.signal([Signal::TERM, Signal::INT][round % 2]);
        let done = live.finish();
        // Before it takes over the signals there is nothing to stop; after the last step, nothing is left to do.
        let is_early = done.code.is_none() && !place.path(&run).exists();
        assert!(is_early || matches!(done.code, Some(0 | 130)), "round {round}: {done}");
        if done.code == Some(130) && place.path(&run).join("metrics.jsonl").exists() {
            place.ok(&format!("verify {run}"));
        }
        whole.equals(&run);
    }
}

#[test]
fn a_second_signal_ends_the_run_at_once_and_it_resumes() {
    let whole = Whole::new();
    let place = &whole.place;
    for (run, signals) in
        [("a", [Signal::INT, Signal::INT]), ("b", [Signal::TERM, Signal::INT]), ("c", [Signal::INT, Signal::TERM])]
    {
        let mut live = place.live(&format!("{} --json", train(run)));
        live.step(3);
        for signal in signals {
            live.signal(signal);
            // Two of a kind that come together count as one.
            std::thread::sleep(Duration::from_millis(2));
        }
        let done = live.finish();
        assert_eq!(done.code, Some(130), "{done}");
        whole.equals(run);
    }
}
