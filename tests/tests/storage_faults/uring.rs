//! io_uring that the system refuses, and little lockable memory (D03).

use super::{RESTRICTED, STEPS, Whole, names, place, train};
use mt_tests::command::{Finished, Place, finish};

/// Runs a command that is denied `what`.
fn denied(place: &Place, what: &str, words: &str) -> Finished {
    finish(place.wrapped(&[RESTRICTED, what], words))
}

/// A run that is denied `what` says one line with these parts and gives the numbers of any other; so does its export.
fn goes_on_without(what: &str, parts: &[&str]) {
    let place = place();
    let whole = Whole::new(&place);
    let says_one_line = |done: &Finished| {
        assert_eq!(done.code, Some(0), "{done}");
        let [line] = done.notices()[..] else { panic!("not one line: {done}") };
        parts.iter().for_each(|part| assert!(line.contains(part), "no {part}: {done}"));
    };
    says_one_line(&denied(&place, what, &format!("{} --export o", train("r", STEPS))));
    whole.equals(&place, "r");
    says_one_line(&denied(&place, what, "export r --out p"));
    says_one_line(&denied(&place, what, "verify r"));
    let file = |out: &str| std::fs::read(place.path(out).join("model.safetensors")).expect("an export");
    assert!(file("o") == file("p") && file("p") == file("whole-weights"));
}

/// `--io uring` is refused, with what to do, and leaves nothing behind; `--io pool` has nothing to say.
fn is_refused_where_demanded(what: &str) {
    let place = place();
    let done = denied(&place, what, &format!("{} --io uring --store a/b", train("r", 1)));
    assert_eq!(done.code, Some(2), "{done}");
    for part in ["--io", "uring", "io_uring_setup", "--io auto"] {
        assert!(done.err.contains(part), "no {part}: {done}");
    }
    assert!(!done.err.contains("panicked") && !place.path("r").exists() && !place.path("a").exists(), "{done}");
    assert_eq!(names(&place.path("a")), [""; 0]);

    let pool = denied(&place, what, &format!("{} --io pool --export o", train("p", 1)));
    assert_eq!(pool.code, Some(0), "{pool}");
    assert!(!pool.err.contains("io_uring"), "what was asked for needs no notice: {pool}");
    place.ok("resume p --steps 2 --allow-change steps --io uring");
    let refused = denied(&place, what, "resume p --steps 3 --allow-change steps");
    assert_eq!(refused.code, Some(2), "{refused}");
    place.ok("verify p");
}

#[test]
fn forbidden_io_uring_gives_the_same_numbers_and_one_line() {
    goes_on_without("uring-eperm", &["io_uring", "kernel.io_uring_disabled", "seccomp", "pool of threads"]);
}

#[test]
fn hidden_io_uring_gives_the_same_numbers_and_one_line() {
    goes_on_without("uring-enosys", &["io_uring", "seccomp", "pool of threads"]);
}

#[test]
fn io_uring_that_is_demanded_and_forbidden_is_a_refusal() {
    is_refused_where_demanded("uring-eperm");
    is_refused_where_demanded("uring-enosys");
}

#[test]
fn little_lockable_memory_gives_the_same_numbers_and_one_line() {
    goes_on_without("memlock=65536", &["RLIMIT_MEMLOCK", "65536 bytes", "ulimit -l"]);
    goes_on_without("memlock=0", &["RLIMIT_MEMLOCK", "have 0 bytes", "ulimit -l"]);
}
