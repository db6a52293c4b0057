//! Trains without numbers and commits every step, until it is killed: `commit-steps STORE tight|roomy wait|run`.
//!
//! Prints a line at each boundary of a step: the step in hand, the last that is durable, where it stands. With `wait`
//! it goes on only when a line came in, so that whoever reads its output can kill it at that very place.

use mt_tests::walk::{Walk, committed};
use std::io::{BufRead, Write};
use std::path::Path;

fn main() -> Result<(), mt_engine::Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, room, pace] = &arguments[..] else { panic!("usage: commit-steps STORE tight|roomy wait|run") };
    let walk = Walk::new(room == "tight");
    let (engine, mut step) = walk.open(Path::new(store))?;
    let (mut out, mut input) = (std::io::stdout().lock(), std::io::stdin().lock());
    loop {
        step += 1;
        walk.step(&engine, step, &mut |place| {
            // Whoever reads this may be gone by now.
            let _ = writeln!(out, "{step} {} {place}", committed(&engine));
            if pace == "wait" {
                input.read_line(&mut String::new()).expect("the pipe works");
            }
        })?;
    }
}
