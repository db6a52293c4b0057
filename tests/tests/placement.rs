//! Results do not depend on where bytes live: the five golden models give bit-identical losses and weights with
//! everything in RAM, with the smallest accepted budget on a store, with the smallest pages, with one and two threads,
//! whatever layers keep for their backward, and when they are stopped after step 3 and resumed.

use mt_tests::case::{Case, REQUIRED};
use mt_tests::rig::{Job, Setup};
use mt_tests::trace::{self, Trace};
use mt_trainer::block::Level;
use mt_trainer::schedule::Kept;
use mt_trainer::settings::Recompute;

const STEPS: u64 = 6;
const SMALLEST_PAGE: usize = 2_048;

fn case(name: &str, clip: Option<f64>) -> (Case, Job) {
    let case = Case::named(name);
    let job = trace::job(&case, clip);
    (case, job)
}

fn trace(case: &Case, job: &Job, setup: &Setup) -> Trace {
    Trace::of(case, job, setup, STEPS).expect("the set-up is sound and the steps run")
}

fn same(what: &str, found: &Trace, expected: &Trace) {
    assert_eq!(found.difference(expected), None, "{what}");
}

/// A store in a fresh folder with the smallest budget that is accepted.
fn streamed(job: &Job, base: &Setup) -> (tempfile::TempDir, Setup) {
    striped(job, base, 1)
}

/// The same on several volumes.
fn striped(job: &Job, base: &Setup, volumes: usize) -> (tempfile::TempDir, Setup) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let stores = (0..volumes).map(|n| folder.path().join(format!("store-{n}"))).collect();
    let setup = Setup { stores, ..base.clone() };
    let budget = Some(job.smallest_budget(&setup));
    (folder, Setup { budget, ..setup })
}

#[test]
fn threads_pages_budgets_and_recomputation_do_not_change_a_bit() {
    for name in REQUIRED {
        let (case, job) = case(name, Some(1.0));
        let base = trace(&case, &job, &Setup::default());
        assert!(base.norms.iter().all(Option::is_some), "clipping needs the norm");
        let one = Setup { threads: 1, ..Setup::default() };
        same(&format!("{name}, one thread"), &trace(&case, &job, &one), &base);
        for recompute in [Recompute::All, Recompute::None] {
            let setup = Setup { recompute, ..Setup::default() };
            same(&format!("{name}, recompute {recompute:?}"), &trace(&case, &job, &setup), &base);
        }
        for page in [None, Some(SMALLEST_PAGE), Some(16_384)] {
            let setup = Setup { page, ..Setup::default() };
            same(&format!("{name}, pages {page:?}"), &trace(&case, &job, &setup), &base);
            let (_folder, setup) = streamed(&job, &setup);
            same(&format!("{name}, pages {page:?} streamed in {:?}", setup.budget), &trace(&case, &job, &setup), &base);
        }
        let base_setup = Setup { durable: false, ..Setup::default() };
        same(&format!("{name}, not durable"), &trace(&case, &job, &base_setup), &base);
        let (_folder, setup) = streamed(&job, &Setup { page: Some(SMALLEST_PAGE), ..base_setup });
        same(&format!("{name}, not durable, streamed"), &trace(&case, &job, &setup), &base);
        let (_folder, setup) = streamed(&job, &Setup { page: Some(SMALLEST_PAGE), threads: 1, ..Setup::default() });
        for volumes in [2, 3] {
            let (_folder, setup) = striped(&job, &Setup { page: Some(SMALLEST_PAGE), ..Setup::default() }, volumes);
            same(&format!("{name}, {volumes} volumes"), &trace(&case, &job, &setup), &base);
        }
        let roomy = Setup { budget: setup.budget.map(|b| b * 2), ..setup };
        same(&format!("{name}, twice the smallest budget, one thread"), &trace(&case, &job, &roomy), &base);
    }
}

/// The different choices of levels among these set-ups, each with the first set-up that leads to it.
fn ways(job: &Job, setups: impl Iterator<Item = Setup>) -> Vec<(Kept, Setup)> {
    let mut ways: Vec<(Kept, Setup)> = Vec::new();
    for setup in setups {
        let kept = job.prepare(&setup).expect("the set-up is sound").kept().clone();
        if !ways.iter().any(|(known, _)| *known == kept) {
            ways.push((kept, setup));
        }
    }
    ways
}

/// A machine that computes attention at this rate.
fn attending(operations_per_s: f64) -> Setup {
    let mut setup = Setup { page: Some(SMALLEST_PAGE), ..Setup::default() };
    for point in &mut setup.rates.compute.attention {
        point.forward_operations_per_s = operations_per_s;
        point.backward_operations_per_s = operations_per_s;
    }
    setup
}

#[test]
fn levels_and_mixtures_of_them_do_not_change_a_bit_in_ram() {
    const BUDGETS: u64 = 12;
    let mut seen = Vec::new();
    for name in REQUIRED {
        let (case, job) = case(name, Some(1.0));
        let base = trace(&case, &job, &Setup { recompute: Recompute::All, ..Setup::default() });
        // Attention is what is dear, or what costs nothing.
        for setup in [attending(1e6), attending(1e15)] {
            let [least, most] = [Recompute::All, Recompute::None]
                .map(|recompute| job.smallest_budget(&Setup { recompute, ..setup.clone() }));
            assert!(least < most);
            let budgets = (0..=BUDGETS).map(|n| least + (most - least) * n / BUDGETS);
            let setups = budgets.map(|budget| Setup { budget: Some(budget), ..setup.clone() });
            for (kept, setup) in ways(&job, setups) {
                same(&format!("{name}, {kept:?} in {:?}", setup.budget), &trace(&case, &job, &setup), &base);
                seen.push(kept);
            }
        }
    }
    let some = |is: &dyn Fn(&Kept) -> bool| seen.iter().any(is);
    for level in Level::EACH {
        assert!(some(&|kept| kept.count(level) == kept.layers.len()), "{level:?} alone: {seen:?}");
    }
    assert!(some(&|kept| kept.layers.windows(2).any(|pair| pair[0] != pair[1])), "a mixture: {seen:?}");
    assert!(some(&|kept| kept.logits), "logits: {seen:?}");
}

#[test]
fn levels_that_stream_do_not_change_a_bit() {
    let mut seen = Vec::new();
    for name in ["mistral-swa", "qwen3-qknorm"] {
        let (case, job) = case(name, Some(1.0));
        let base = trace(&case, &job, &Setup { recompute: Recompute::All, ..Setup::default() });
        let (folder, setup) = streamed(&job, &attending(1e6));
        // What a link may move while attention is computed decides what is kept.
        let setups = (0..24).map(|n| {
            let mut setup = setup.clone();
            let rate = 1e4 * 2_f64.powi(n);
            setup.rates.engine.disk_read_bytes_per_s = rate;
            setup.rates.engine.disk_write_bytes_per_s = rate;
            setup.rates.engine.disk_mixed_bytes_per_s = rate;
            // As the smallest, and half as much again: what is kept needs a window of its own.
            Setup { budget: setup.budget.map(|bytes| bytes + bytes / 2), ..setup }
        });
        for (index, (kept, setup)) in ways(&job, setups).into_iter().enumerate() {
            let setup = Setup { stores: vec![folder.path().join(format!("way-{index}"))], ..setup };
            let all = job.prepare(&Setup { recompute: Recompute::All, ..setup.clone() }).expect("it fits");
            let more = job.prepare(&setup).expect("it fits").activation_traffic().1 > all.activation_traffic().1;
            same(&format!("{name}, {kept:?} streamed"), &trace(&case, &job, &setup), &base);
            seen.push((kept, more));
        }
    }
    let streams = |level| seen.iter().any(|(kept, more)| *more && kept.count(level) > 0);
    assert!(streams(Level::Attention) && streams(Level::All), "{seen:?}");
}

#[test]
fn the_smallest_budget_streams() {
    let (case, job) = case("llama-gqa", Some(1.0));
    let (_folder, setup) = streamed(&job, &Setup { page: Some(SMALLEST_PAGE), ..Setup::default() });
    let mut rig = job.begin(&setup).expect("the set-up is sound");
    let before = rig.stats();
    rig.step(&case.batch(), 1e-3).expect("the step runs");
    rig.step(&case.batch(), 1e-3).expect("the step runs");
    let moved = rig.stats();
    let state = 12 * mt_trainer::model::Manifest::new(&job.config).elements();
    assert!(moved.disk_read_bytes - before.disk_read_bytes > state, "pages are read in every step");
    assert!(moved.disk_write_bytes > before.disk_write_bytes, "and written");
}

#[test]
fn a_run_stopped_after_step_3_and_resumed_does_not_change_a_bit() {
    for name in REQUIRED {
        let (case, job) = case(name, Some(1.0));
        let base = trace(&case, &job, &Setup::default());
        for page in [None, Some(SMALLEST_PAGE)] {
            let (_folder, setup) = striped(&job, &Setup { page, ..Setup::default() }, 2);
            let mut rig = job.begin(&setup).expect("the set-up is sound");
            let mut found = Trace::default();
            found.go_on(&mut rig, &case, 1..=3).expect("the steps run");
            rig.flush(Some(b"3")).expect("the commit is made");
            rig.close().expect("the store closes");
            let mut stores = setup.stores.clone();
            stores.reverse();
            let resumed = Setup { threads: 1, budget: None, stores, ..setup };
            let mut rig = job.resume(&resumed).expect("the store opens");
            found.go_on(&mut rig, &case, 4..=STEPS).expect("the steps run");
            found.end(&mut rig).expect("the weights can be read");
            same(&format!("{name}, pages {page:?}, resumed"), &found, &base);
        }
    }
}

#[test]
fn a_run_may_go_on_with_other_levels_and_the_other_update_schedule() {
    let (case, job) = case("qwen3-qknorm", None);
    let base = trace(&case, &job, &Setup::default());
    let ways = [(Recompute::None, false), (Recompute::All, true), (Recompute::Auto, false), (Recompute::None, true)];
    for (first, second) in ways.iter().zip(&ways[1..]) {
        let way = |(recompute, fused_backward)| Setup { recompute, fused_backward, ..Setup::default() };
        let (_folder, setup) = streamed(&job, &way(*first));
        let mut rig = job.begin(&setup).expect("the set-up is sound");
        let mut found = Trace::default();
        found.go_on(&mut rig, &case, 1..=3).expect("the steps run");
        rig.flush(Some(b"3")).expect("the commit is made");
        rig.close().expect("the store closes");
        let resumed = Setup { stores: setup.stores.clone(), ..way(*second) };
        let mut rig = job.resume(&resumed).expect("the store opens");
        found.go_on(&mut rig, &case, 4..=STEPS).expect("the steps run");
        found.end(&mut rig).expect("the weights can be read");
        same(&format!("{first:?}, then {second:?}"), &found, &base);
    }
}

#[test]
fn a_commit_in_the_middle_of_a_run_does_not_change_a_bit_and_can_be_resumed() {
    let (case, job) = case("qwen2-bias", Some(1.0));
    let base = trace(&case, &job, &Setup::default());
    let (_folder, setup) = streamed(&job, &Setup { page: Some(SMALLEST_PAGE), ..Setup::default() });
    let mut rig = job.begin(&setup).expect("the set-up is sound");
    let (rates, batch) = (case.learning_rate(), case.batch());
    for step in 1..=5 {
        // The mark of step N lies in the forward of step N + 1.
        let note = (step - 1).to_string();
        let commit = (step > 1 && step % 2 == 1).then_some(note.as_bytes());
        let outcome = rig.step_committing(&batch, rates.at(step), commit).expect("the step runs");
        assert_eq!(outcome.loss.to_bits(), base.losses[step as usize - 1], "step {step}");
    }
    rig.close().expect("the store closes");
    let mut rig = job.resume(&setup).expect("the store opens");
    let mut found = Trace { losses: base.losses[..4].to_vec(), norms: base.norms[..4].to_vec(), ..Trace::default() };
    found.go_on(&mut rig, &case, 5..=STEPS).expect("the steps run");
    found.end(&mut rig).expect("the weights can be read");
    same("resumed at the commit of step 4", &found, &base);
}

#[test]
fn the_two_update_schedules_give_the_same_bits_without_clipping() {
    for name in ["llama-gqa", "llama3-rope-tied"] {
        let (case, job) = case(name, None);
        let base = trace(&case, &job, &Setup::default());
        let fused = Setup { fused_backward: true, page: Some(SMALLEST_PAGE), ..Setup::default() };
        let found = trace(&case, &job, &fused);
        assert_eq!(found.losses, base.losses, "{name}: losses");
        assert!(found.weights.bits() == base.weights.bits(), "{name}: weights");
        let (_folder, setup) = streamed(&job, &fused);
        let found = trace(&case, &job, &setup);
        assert_eq!(found.losses, base.losses, "{name}, streamed: losses");
        assert!(found.weights.bits() == base.weights.bits(), "{name}, streamed: weights");
    }
}
