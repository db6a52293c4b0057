//! Tickets beside sweeps with devices: whoever asks for pages that a device changes gets what was written last, and a
//! sweep finds what tickets wrote, also where its bytes had been brought to VRAM before.

use super::{Course, PAGE, PLAIN, Stopped, World};
use crate::core::Command;
use crate::core::testing::stamps;
use crate::id::{Mode, Run};
use crate::io::{FrameMut, FrameRef};
use crate::plan::{Home, Interval};

/// A ticket of the user beside the walker.
struct Asked {
    number: u64,
    run: Run,
    mode: Mode,
    /// Offset in the arena, once it is ready.
    offset: Option<u64>,
    written: bool,
}

/// The user beside the walker: at most one ticket at a time, never waited for by the walker.
#[derive(Default)]
pub(super) struct Visitor {
    next: u64,
    asked: Option<Asked>,
    pub(super) reads: u64,
    pub(super) writes: u64,
}

impl World {
    /// One act of the visitor.
    pub(super) fn visit_by_ticket(&mut self) {
        let Some(mut asked) = self.visitor.asked.take() else {
            // Runs with a home in VRAM are refused, and pages of scratch may be undefined.
            let lives_elsewhere = |i: &&Interval| !matches!(i.home, Home::Device { .. }) && i.run.region.0 == 0;
            let runs: Vec<Run> = self.plan.intervals.iter().filter(lives_elsewhere).map(|i| i.run).collect();
            if runs.is_empty() || self.begun > self.acknowledged {
                return;
            }
            let run = runs[self.numbers.below(runs.len() as u64) as usize];
            let mode = if self.numbers.below(3) == 0 { Mode::Update } else { Mode::Read };
            let number = self.visitor.next;
            self.visitor.next += 1;
            self.core.command(Command::Fetch { ticket: number, run, mode });
            self.visitor.asked = Some(Asked { number, run, mode, offset: None, written: false });
            return;
        };
        let bytes = asked.run.count * PAGE as u32;
        match (asked.offset, self.tickets.remove(&asked.number)) {
            (None, Some(Ok(offset))) => {
                let expected = self.expected(asked.run).expect("a checkpointed run");
                let frame = FrameRef::new(offset, bytes);
                for (page, stamp) in self.arena.slice(&frame).chunks_exact(PAGE as usize).zip(expected) {
                    stamps::check(page, stamp, format_args!("a ticket for {}", asked.run));
                }
                if asked.mode.writes() {
                    let stamps = self.restamp(asked.run);
                    let mut frame = FrameMut::new(offset, bytes);
                    let pages = self.arena.slice_mut(&mut frame).chunks_exact_mut(PAGE as usize);
                    pages.zip(stamps).for_each(|(page, stamp)| stamps::fill(page, stamp));
                    asked.written = true;
                }
                asked.offset = Some(offset);
            }
            (None, Some(Err(error))) => panic!("a ticket for {}: {error}", asked.run),
            (None, None) => {}
            (Some(_), _) => {
                self.visitor.reads += u64::from(!asked.written);
                self.visitor.writes += u64::from(asked.written);
                self.core.command(Command::GiveBack { ticket: asked.number, changed: asked.written });
                return;
            }
        }
        self.visitor.asked = Some(asked);
    }

    /// Whether the visitor has what he asked for.
    pub(super) fn visitor_holds(&self) -> bool {
        self.visitor.asked.as_ref().is_some_and(|it| it.offset.is_some() || self.tickets.contains_key(&it.number))
    }

    /// Whether the visitor has, or may get, the right to change what a commit covers.
    pub(super) fn visitor_writes(&self) -> bool {
        self.visitor.asked.as_ref().is_some_and(|asked| asked.mode.writes())
    }

    /// Waits until the visitor has nothing.
    pub(super) fn visitor_leaves(&mut self) -> Result<(), Stopped> {
        self.until(|world| {
            if world.visitor.asked.is_some() {
                world.visit_by_ticket();
            }
            world.visitor.asked.is_none().then_some(())
        })
    }
}

#[test]
fn tickets_and_devices_see_what_the_other_wrote() {
    let (mut reads, mut writes) = (0, 0);
    for seed in 0..400 {
        let streams = seed % 3 != 0;
        let mut world = World::new(seed, Course { tickets: true, streams, ..PLAIN });
        assert!(world.live().is_ok(), "nothing stops the disk");
        world.images(seed).into_iter().for_each(|image| world.check_image(image));
        reads += world.visitor.reads;
        writes += world.visitor.writes;
    }
    eprintln!("{reads} reads, {writes} writes");
    assert!(reads > 1_000 && writes > 500, "{reads} reads, {writes} writes");
}
