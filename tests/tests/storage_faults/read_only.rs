//! A file system that cannot be written (D01).

use super::{STEPS, Whole, place, train};
use mt_tests::mounts::{Ext4, Needs, must, privately};

/// An error on the device turns ext4 read-only, whatever is open on it.
fn turns_read_only(is_whole_run: bool) {
    let place = place();
    let whole = Whole::new(&place);
    let ext4 = Ext4::new(place.path("image"), place.path("disk"), 256 << 20, 512);
    let (run, words) = match is_whole_run {
        true => ("disk/r", train("disk/r", STEPS)),
        false => ("r", format!("{} --store disk/store", train("r", STEPS))),
    };
    let mut live = place.live(&format!("{words} --json"));
    live.step(2);
    ext4.turn_read_only();
    let done = live.finish();
    assert_eq!(done.code, Some(4), "{done}");
    // Which of the two it is depends on the call that meets it first.
    let is_said = ["Read-only file system", "Input/output error"].iter().any(|error| done.err.contains(error));
    assert!(done.err.contains("disk") && is_said && !done.err.contains("panicked"), "{done}");
    place.refused(&format!("resume {run}"), 4, &["disk", "Read-only file system"]);
    ext4.unmount();
    ext4.mount();
    place.ok(&format!("verify {run}"));
    place.ok(&format!("resume {run}"));
    whole.equals(&place, run);
}

#[test]
fn a_volume_that_turns_read_only_stops_the_run_and_the_last_commit_opens() {
    privately(Needs::Loop, || turns_read_only(false));
}

#[test]
fn a_run_on_a_disk_that_turns_read_only_stops_and_the_last_commit_opens() {
    privately(Needs::Loop, || turns_read_only(true));
}

#[test]
fn a_read_only_mount_can_be_read_and_is_refused_by_name_where_it_would_be_written() {
    privately(Needs::Ram, || {
        let place = place();
        let whole = Whole::new(&place);
        let stopped = place.run(&format!("{} --store s/store --stop-at 2", train("r", STEPS)));
        assert_eq!(stopped.code, Some(130), "{stopped}");
        let at = place.path("s");
        let path = at.to_str().expect("a path");
        must("mount", &["--bind", path, path]);
        must("mount", &["-o", "remount,bind,ro", path]);
        place.refused("resume r", 4, &[path, "Read-only file system"]);
        place.ok("verify r");
        place.ok("export r --out o");
        let other = place.refused(&format!("{} --store s/other", train("other", 1)), 4, &[path, "Read-only"]);
        assert!(!place.path("other").exists(), "nothing is left of it: {other}");
        must("umount", &[path]);
        place.ok("resume r");
        whole.equals(&place, "r");
    });
}
