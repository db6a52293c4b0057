//! A file system that forgets what was not synced (D05): what was called durable is there afterwards, names of files
//! and folders included, and the run goes on to the very same numbers.

use super::{STEPS, Whole, place, train};
use mt_tests::mounts::{Ext4, Needs, privately};
use serde_json::Value;

#[test]
fn a_power_loss_leaves_what_was_called_durable() {
    privately(Needs::Loop, || {
        let place = place();
        let whole = Whole::new(&place);
        let ext4 = Ext4::new(place.path("image"), place.path("disk"), 512 << 20, 512);
        // Folders that are new with the run: their names must not be lost either.
        let moments = [("committed", 0), ("step", 2), ("step", 4), ("committed", STEPS)];
        for (round, (event, step)) in moments.into_iter().enumerate() {
            let run = format!("disk/runs{round}/new/r");
            let words = format!("{} --json --store disk/stores{round}/new/s", train(&run, STEPS));
            let mut live = place.live(&words);
            live.until(event, |value| value["step"] == step);
            ext4.lose_power();
            let done = live.kill();
            ext4.unmount();
            ext4.mount();
            let durable = if event == "committed" { step } else { step.saturating_sub(2) };
            let shown: Value = serde_json::from_str(&place.ok(&format!("inspect {run} --json")).out).expect("JSON");
            let found = shown["note"]["step"].as_u64().unwrap_or_else(|| panic!("no commit: {shown}\n{done}"));
            assert!(found >= durable, "step {durable} was durable, step {found} is there: {done}");
            assert!(place.metrics_whole(&run) as u64 >= found, "lines of committed steps are there: {done}");
            place.ok(&format!("resume {run}"));
            whole.equals(&place, &run);
            place.ok(&format!("rm {run} --yes"));
        }
    });
}

#[test]
fn a_power_loss_after_an_export_leaves_the_export() {
    privately(Needs::Loop, || {
        let place = place();
        Whole::new(&place);
        let ext4 = Ext4::new(place.path("image"), place.path("disk"), 256 << 20, 512);
        place.ok("export whole --out disk/new/folder/o --max-shard 1MB");
        ext4.lose_power();
        ext4.unmount();
        ext4.mount();
        let read = |out: &str| mt_tests::tensors::Tensors::read_model(&place.path(out));
        assert!(read("disk/new/folder/o").bits() == read("whole-weights").bits());
    });
}
