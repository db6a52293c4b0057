//! File systems of all kinds give the same numbers (D02).

use super::{RESTRICTED, STEPS, Whole, place, train};
use mt_tests::command::{Finished, Place, finish};
use mt_tests::mounts::{Ext4, Needs, mount_overlay, mount_ram, privately};
use serde_json::Value;

/// Whether the store of a run has direct I/O.
fn is_direct(place: &Place, run: &str) -> bool {
    let shown: Value = serde_json::from_str(&place.ok(&format!("inspect {run} --json")).out).expect("JSON");
    shown["volumes"][0]["direct_io"].as_bool().expect("known of a store that opens")
}

/// A run with its store in `at` gives the numbers of any other, and says one line with these parts, or nothing if
/// there are none.
fn gives_the_same(place: &Place, whole: &Whole, at: &str, parts: &[&str]) {
    let run = format!("{at}-run");
    let done = place.ok(&format!("{} --store {at}/store", train(&run, STEPS)));
    says(&done, parts);
    whole.equals(place, &run);
}

fn says(done: &Finished, parts: &[&str]) {
    let lines = done.notices();
    assert_eq!(lines.len(), usize::from(!parts.is_empty()), "{done}");
    parts.iter().for_each(|part| assert!(lines[0].contains(part), "no {part}: {done}"));
}

#[test]
fn file_systems_in_ram_give_the_same_numbers_and_one_line() {
    privately(Needs::Ram, || {
        let place = place();
        let whole = Whole::new(&place);
        mount_ram("tmpfs", "size=256m", &place.path("tmpfs"));
        mount_ram("ramfs", "mode=755", &place.path("ramfs"));
        gives_the_same(&place, &whole, "tmpfs", &["tmpfs/store", "is RAM"]);
        gives_the_same(&place, &whole, "ramfs", &["ramfs/store", "is RAM", "direct I/O is refused"]);
        assert!(!is_direct(&place, "ramfs-run"));
    });
}

#[test]
fn an_overlay_gives_the_same_numbers() {
    privately(Needs::Overlay, || {
        let place = place();
        let whole = Whole::new(&place);
        mount_overlay(&place.path("overlay"), 256 << 20);
        let done = place.ok(&format!("{} --store overlay/store", train("r", STEPS)));
        // Whether it has direct I/O is the kernel's matter; if not, that is one line.
        let lines = done.notices();
        let is_direct = is_direct(&place, "r");
        assert!(lines.len() <= 1 && (is_direct || lines[0].contains("direct I/O is refused")), "{done}");
        whole.equals(&place, "r");
    });
}

#[test]
fn sectors_of_any_size_give_the_same_numbers() {
    privately(Needs::Loop, || {
        let place = place();
        let whole = Whole::new(&place);
        for sector in [512, 4096] {
            let name = format!("ext4-{sector}");
            let ext4 = Ext4::new(place.path(&format!("{name}.image")), place.path(&name), 256 << 20, sector);
            gives_the_same(&place, &whole, &name, &[]);
            assert!(is_direct(&place, &format!("{name}-run")));
            place.ok(&format!("rm {name}-run --yes"));
            ext4.unmount();
        }
    });
}

#[test]
fn direct_io_that_is_refused_is_one_line_or_where_it_is_demanded_a_refusal() {
    let place = place();
    let whole = Whole::new(&place);
    let denied = |words: &str| finish(place.wrapped(&[RESTRICTED, "direct"], words));
    let done = denied(&format!("{} --store d/store", train("r", STEPS)));
    assert_eq!(done.code, Some(0), "{done}");
    says(&done, &["d/store", "direct I/O is refused", "page cache"]);
    whole.equals(&place, "r");

    let done = denied(&format!("{} --store e/store --direct-io required", train("q", 1)));
    assert_eq!(done.code, Some(2), "{done}");
    for part in ["--direct-io", "required", "e/store", "--direct-io preferred"] {
        assert!(done.err.contains(part), "no {part}: {done}");
    }
    assert!(!place.path("e").exists() && !place.path("q").exists(), "{done}");

    // A run that demands it does not go on without, but its state can be read.
    place.ok(&format!("{} --direct-io required", train("p", 1)));
    let refused = denied("resume p --steps 2 --allow-change steps");
    assert_eq!(refused.code, Some(2), "{refused}");
    says(&denied("verify p"), &["direct I/O is refused"]);
    says(&denied("resume p --steps 2 --allow-change steps --direct-io preferred"), &["direct I/O is refused"]);
}
