//! A disk without space (D01).

use super::{STEPS, Whole, names, place, train};
use mt_tests::command::Place;
use mt_tests::mounts::{Ext4, Needs, fill, mount_ram, privately};
use std::path::Path;

/// The number that stands behind `word` in a text.
fn number_behind(text: &str, word: &str) -> u64 {
    let behind = text.split_once(word).map(|(_, behind)| behind.split([' ', ';']).next().unwrap_or_default());
    behind.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number behind {word}: {text}"))
}

/// A store that does not fit is refused with the numbers, and nothing is left of it.
fn is_refused_on(place: &Place, at: &Path) {
    let free = || rustix::fs::statvfs(at).map(|s| s.f_bavail * s.f_frsize).expect("a file system");
    let (before, held) = (free(), names(at));
    let store = at.join("a/store").display().to_string();
    let done = place.refused(&format!("{} --store {store}", train("r", 1)), 3, &[&store]);
    let (needed, stated) = (number_behind(&done.err, ") needs "), number_behind(&done.err, " has "));
    assert!(needed > stated && stated <= before, "{needed} needed, {stated} free, in truth {before}");
    assert_eq!((names(at), free()), (held, before), "nothing is left on the volume");
    assert!(!place.path("r").exists(), "nothing is left of the run");
}

/// Bytes that the store of [`train`] takes when it is made, and those that its plan adds.
fn sizes(place: &Place) -> (u64, u64) {
    place.ok(&train("sized", 1));
    let sized = mt_trainer::run::inspect(&place.path("sized")).expect("a run");
    let all = sized.store_bytes;
    let made = mt_engine::reserved_bytes(&sized.description.expect("a store").regions);
    place.ok("rm sized --yes");
    assert!(made > 1 << 20 && all > made, "{made} bytes when it is made, {all} with what spills");
    (made, all)
}

#[test]
fn a_store_that_does_not_fit_is_refused_and_leaves_nothing() {
    privately(Needs::Ram, || {
        let place = place();
        let (made, all) = sizes(&place);
        // Far too small; a little too small; enough when it is made, but not for what the plan spills.
        for (name, bytes) in [("a", 1 << 20), ("b", made - 4096), ("c", (made + all) / 2)] {
            let at = place.path(name);
            mount_ram("tmpfs", &format!("size={bytes}"), &at);
            is_refused_on(&place, &at);
        }
        let at = place.path("d");
        mount_ram("tmpfs", &format!("size={}", all + (1 << 20)), &at);
        place.ok(&format!("{} --store {}", train("fits", 1), at.join("store").display()));
    });
}

#[test]
fn a_store_that_does_not_fit_a_disk_is_refused_and_leaves_nothing() {
    privately(Needs::Loop, || {
        let place = place();
        let ext4 = Ext4::new(place.path("image"), place.path("disk"), 16 << 20, 512);
        is_refused_on(&place, &ext4.at);
    });
}

#[test]
fn a_run_folder_that_does_not_fit_is_not_left_behind() {
    privately(Needs::Ram, || {
        let place = place();
        let at = place.path("tiny");
        // Room for the settings, not for the text's ids.
        mount_ram("tmpfs", "size=64k", &at);
        let done = place.refused(&train("tiny/r", 1), 4, &["tiny/r", "No space left on device"]);
        assert_eq!(names(&at), [""; 0], "{done}");
    });
}

#[test]
fn a_disk_that_others_fill_does_not_reach_a_store() {
    privately(Needs::Ram, || {
        let place = place();
        let whole = Whole::new(&place);
        let (_, all) = sizes(&place);
        let at = place.path("full");
        mount_ram("tmpfs", &format!("size={}", all + (1 << 20)), &at);
        let mut run = place.live(&format!("{} --json --store {}", train("r", STEPS), at.join("store").display()));
        run.step(3);
        fill(&at);
        let done = run.finish();
        assert_eq!(done.code, Some(0), "its space was reserved: {done}");
        whole.equals(&place, "r");
    });
}

#[test]
fn a_run_whose_folder_fills_up_stops_and_resumes() {
    privately(Needs::Ram, || {
        let place = place();
        let at = place.path("small");
        mount_ram("tmpfs", "size=8m", &at);
        let words = |run: &str| format!("{} --store {}", train(run, 24), place.path(&format!("{run}.store")).display());
        place.ok(&words("whole"));
        let mut run = place.live(&format!("{} --json", words("small/r").replace("small/r.store", "r.store")));
        run.step(3);
        let filler = fill(&at);
        let done = run.finish();
        assert_eq!(done.code, Some(4), "{done}");
        for part in ["metrics.jsonl", "No space left on device"] {
            assert!(done.err.contains(part), "{done}");
        }
        // Nothing gets better by itself, and nothing gets worse by trying.
        let again = place.run("resume small/r");
        assert_eq!(again.code, Some(4), "{again}");
        std::fs::remove_file(filler).expect("the filler can be removed");
        place.ok("resume small/r");
        assert_eq!(place.losses("small/r"), place.losses("whole"));
    });
}

#[test]
fn an_export_to_a_full_disk_leaves_nothing_and_the_run_alone() {
    privately(Needs::Ram, || {
        let place = place();
        let whole = Whole::new(&place);
        let at = place.path("out");
        mount_ram("tmpfs", "size=1m", &at);
        let out = at.join("model").display().to_string();
        place.refused(&format!("export whole --out {out}"), 4, &["out", "No space left on device"]);
        assert_eq!(names(&at), [""; 0]);

        // With a run: refused before its first step.
        let done = place.refused(&format!("{} --export {out}", train("r", STEPS)), 3, &["out"]);
        assert_eq!(names(&at), [""; 0], "{done}");
        assert!(!place.path("r").exists(), "{done}");

        // In the middle of one: the run goes on.
        let stopped = place.run(&format!("{} --stop-at 2", train("half", STEPS)));
        assert_eq!(stopped.code, Some(130), "{stopped}");
        place.refused(&format!("export half --out {out}"), 4, &["No space left on device"]);
        place.ok("resume half");
        whole.equals(&place, "half");
    });
}

#[test]
fn a_refusal_after_the_last_step_leaves_the_run_alone() {
    let place = place();
    let whole = Whole::new(&place);
    let mut run = place.live(&format!("{} --json --export o", train("r", STEPS)));
    run.step(2);
    place.write("o/mine.txt", "in the way since the run began");
    let done = run.finish();
    assert_eq!(done.code, Some(2), "{done}");
    whole.equals(&place, "r");
    assert_eq!(place.read("o/mine.txt"), "in the way since the run began");
}

/// A thin volume: the file system has space, its device has none, and says so with EIO.
#[test]
fn a_device_that_runs_out_of_blocks_stops_the_run_and_the_last_commit_opens() {
    privately(Needs::Loop, || {
        let place = place();
        let whole = Whole::new(&place);
        let (_, all) = sizes(&place);
        let thin = place.path("thin");
        // Enough for the file system itself and for the import, too little for all extents.
        mount_ram("tmpfs", &format!("size={}", all * 2 / 3), &thin);
        let ext4 = Ext4::new(thin.join("image"), place.path("disk"), all + (64 << 20), 512);
        let store = ext4.at.join("store").display().to_string();
        let done = place.run(&format!("{} --store {store}", train("r", STEPS)));
        assert_eq!(done.code, Some(4), "{done}");
        assert!(done.err.contains(&store) && !done.err.contains("panicked"), "{done}");
        let before = place.metrics("r").len();
        ext4.unmount();
        mt_tests::mounts::must("mount", &["-o", "remount,size=1g", thin.to_str().expect("a path")]);
        ext4.mount();
        let resumed = place.ok("resume r");
        assert!(before < STEPS as usize, "it was stopped: {resumed}");
        whole.equals(&place, "r");
    });
}
