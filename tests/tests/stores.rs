//! A run on several volumes at the command level: pages on each, the same bits as on one, resume from a moved volume,
//! refusals that name what is missing.

use mt_tests::command::Place;

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");

fn train(run: &str, more: &str) -> String {
    format!("train --ram 64MiB --steps 4 --batch 1 --seq-len 64 --run {run} {more}")
}

#[test]
fn a_run_on_two_volumes_gives_the_same_bits_and_can_be_moved() {
    let place = Place::new(MT);
    place.ok(&train("one", ""));
    let stopped = place.run(&train("two", "--store a --store b --stop-at 2"));
    assert_eq!(stopped.code, Some(130), "{stopped}");
    for volume in ["a", "b"] {
        assert!(place.bytes(volume) > 8 << 20, "{volume} holds pages");
    }
    std::fs::rename(place.path("b"), place.path("moved")).expect("the volume can be moved");
    let (old, new) = (place.path("b"), place.path("moved"));
    let (old, new) = (old.display(), new.display());
    place.refused("resume two", 2, &["/b", "--store"]);
    place.ok(&format!("resume two --store {old}={new}"));
    assert_eq!(place.losses("two"), place.losses("one"), "losses");
    assert!(place.weights("two").bits() == place.weights("one").bits(), "weights");
    place.ok("verify two");
    let removed = place.ok("rm two --yes");
    assert!(!place.path("a").exists() && !place.path("moved").exists(), "{removed}");
}

#[test]
fn one_directory_twice_is_refused() {
    let place = Place::new(MT);
    place.refused(&train("r", "--store a --store ./a"), 2, &["twice"]);
}
