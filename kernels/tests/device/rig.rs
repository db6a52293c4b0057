//! What the parts share: a queue, seeded numbers, poisoned outputs, comparisons, timing and the table.

use crate::measure;
use cudarc::driver::sys::CUevent_flags;
use mt_kernels::Cpu;
use mt_kernels::cuda::{Buffer, Element, Error, Queue, Real};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Repeats of a timed launch, of which the median counts.
const REPEATS: usize = 9;

pub struct Rig {
    pub queue: Queue,
    pub cpu: Cpu,
    pub rng: Rng,
    /// Lines of the table, in order of their first case.
    lines: Vec<Line>,
    /// Number of timed launches.
    timed: usize,
}

/// Cases of one kernel and result.
struct Line {
    name: String,
    cases: usize,
    failed: usize,
    /// Number of elements compared.
    elements: usize,
    /// Greatest error and the error allowed there; None where bits are compared.
    worst: Option<(f64, f64)>,
}

/// Work of a timed launch, for its rate.
#[derive(Clone, Copy)]
pub enum Work {
    /// Bytes read and written.
    Bytes(f64),
    /// Multiplications and additions.
    Flops(f64),
}

impl Rig {
    pub fn new(queue: Queue) -> Rig {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let cpu = Cpu::new(threads).expect("threads can be started");
        Rig { queue, cpu, rng: Rng(1), lines: Vec::new(), timed: 0 }
    }

    pub fn upload<T: Element>(&self, from: &[T]) -> Result<Buffer<T>, Error> {
        Buffer::from_slice(&self.queue, from)
    }

    /// A buffer whose bits are all ones: NaN in f32 and bf16.
    pub fn poisoned<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        let mut buffer = Buffer::new(self.queue.gpu(), len)?;
        buffer.fill(&self.queue, 0xFF)?;
        Ok(buffer)
    }

    /// Does `work`; what stops it is printed and counted as a failure of `what`.
    pub fn attempt(&mut self, what: &str, work: impl FnOnce(&mut Rig) -> Result<(), Error>) {
        // After a panic the rig has all cases that were done until then.
        let why = match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it panicked, see above".to_owned(),
        };
        self.case(what, 0, None, false, || why);
    }

    /// A case whose results must have the same bits.
    pub fn exact<T: Bits>(&mut self, what: &str, got: &[T], want: &[T]) {
        let differ = got.iter().zip(want).filter(|(a, b)| a.bits() != b.bits()).count();
        let first = got.iter().zip(want).position(|(a, b)| a.bits() != b.bits());
        let at = first.map_or(String::new(), |i| format!(" from {i}: {:#x} {:#x}", got[i].bits(), want[i].bits()));
        let good = got.len() == want.len() && differ == 0;
        let why = || format!("{differ} of {} differ{at}", want.len());
        self.case(what, want.len(), None, good, why);
    }

    /// A case whose results are close to a reference: the greatest distance, relative to the element or to the root
    /// mean square of all, whichever is larger.
    pub fn close<T: Real + Bits>(&mut self, what: &str, got: &[T], want: &[f64], allowed: f64) {
        self.close_rows(what, got, want, 1, 1e-30, allowed);
    }

    /// The same, relative also to the root mean square of the element's row of `width` and to `least`: see
    /// [`measure::worst`].
    pub fn close_rows<T: Real + Bits>(
        &mut self,
        what: &str,
        got: &[T],
        want: &[f64],
        width: usize,
        least: f64,
        allowed: f64,
    ) {
        assert_eq!(got.len(), want.len(), "{what}");
        let (at, worst) = measure::worst(got.iter().map(|x| x.value()), want, width, least);
        let why = || format!("{worst:.1e} at {at}: {} for {}; {allowed:.0e} allowed", got[at].value(), want[at]);
        self.case(what, want.len(), Some((worst, allowed)), worst <= allowed, why);
    }

    /// Two runs of a case must have the same bits; counted only if they do not.
    pub fn same<T: Bits>(&mut self, what: &str, a: &[T], b: &[T]) {
        if a.len() != b.len() || a.iter().zip(b).any(|(a, b)| a.bits() != b.bits()) {
            self.case(what, 0, None, false, || "two runs differ".to_owned());
        }
    }

    /// A case; what stands before its sizes names its line in the table. A failure is printed at once.
    fn case(
        &mut self,
        what: &str,
        elements: usize,
        error: Option<(f64, f64)>,
        good: bool,
        why: impl FnOnce() -> String,
    ) {
        let is_size = |word: &&str| !word.starts_with(|c: char| c.is_ascii_digit() || c == '[');
        let name = what.split_whitespace().take_while(is_size).collect::<Vec<_>>().join(" ");
        let name = name.trim_end_matches(',').to_owned();
        if !good {
            println!("FAIL  {what}: {}", why());
        }
        let at = self.lines.iter().position(|line| line.name == name).unwrap_or(self.lines.len());
        if at == self.lines.len() {
            self.lines.push(Line { name, cases: 0, failed: 0, elements: 0, worst: error });
        }
        let line = &mut self.lines[at];
        line.cases += 1;
        line.failed += usize::from(!good);
        line.elements += elements;
        let share = |(error, allowed): (f64, f64)| error / allowed;
        if let (Some(new), Some(old)) = (error, line.worst)
            && share(new) > share(old)
        {
            line.worst = error;
        }
    }

    /// The median milliseconds of a launch, and a line with its rate.
    pub fn time(
        &mut self,
        what: &str,
        work: Work,
        mut launch: impl FnMut(&Queue) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let stream = self.queue.stream();
        let event = || stream.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).expect("an event");
        launch(&self.queue)?;
        launch(&self.queue)?;
        let mut times = Vec::new();
        for _ in 0..REPEATS {
            let (begin, end) = (event(), event());
            begin.record(stream).expect("recording an event");
            launch(&self.queue)?;
            end.record(stream).expect("recording an event");
            times.push(f64::from(begin.elapsed_ms(&end).expect("the launch ended")));
        }
        times.sort_by(f64::total_cmp);
        let ms = times[REPEATS / 2];
        let rate = match work {
            Work::Bytes(bytes) => format!("{:.0} GB/s", bytes / ms / 1e6),
            Work::Flops(flops) => format!("{:.1} TFLOP/s", flops / ms / 1e9),
        };
        println!("time  {what:58}  {ms:.3} ms, {rate}");
        self.timed += 1;
        Ok(())
    }

    /// Prints the table; whether nothing failed.
    pub fn finish(self) -> bool {
        println!("{:6}{:42}{:>6}{:>12}  greatest error (allowed)", "", "result", "cases", "elements");
        for line in &self.lines {
            let good = if line.failed == 0 { "ok" } else { "FAIL" };
            let error =
                line.worst.map_or("same bits".to_owned(), |(error, allowed)| format!("{error:.1e} ({allowed:.0e})"));
            println!("{good:6}{:42}{:>6}{:>12}  {error}", line.name, line.cases, line.elements);
        }
        let failed: usize = self.lines.iter().map(|line| line.failed).sum();
        let cases: usize = self.lines.iter().map(|line| line.cases).sum();
        println!("{} passed, {failed} failed, {} timed", cases - failed, self.timed);
        failed == 0 && cases + self.timed > 0
    }
}

/// A small generator (splitmix64), so that tests are the same everywhere.
pub struct Rng(u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// About normal, standard deviation 1 (sum of four uniforms), rounded to T.
    pub fn vec<T: Value>(&mut self, n: usize) -> Vec<T> {
        let uniform = |rng: &mut Rng| (rng.next() >> 40) as f32 / (1u32 << 24) as f32;
        let normal = |rng: &mut Rng| ((0..4).map(|_| uniform(rng)).sum::<f32>() - 2.0) * 3f32.sqrt();
        (0..n).map(|_| T::of(normal(self))).collect()
    }

    /// The same, where only speed is asked for: a million numbers over and over.
    pub fn tiled<T: Value>(&mut self, n: usize) -> Vec<T> {
        let tile = self.vec::<T>(n.min(1 << 20));
        (0..n).map(|i| tile[i % tile.len()]).collect()
    }
}

/// Bits of an element.
pub trait Bits: Copy {
    fn bits(self) -> u64;
}

/// Activations: their value, and from a value.
pub trait Value: Real + Bits {
    const NAME: &'static str;
    /// Relative error of one rounding.
    const ROUNDING: f64;
    fn of(x: f32) -> Self;
}

macro_rules! bits {
    ($($t:ty: $get:expr),*) => {
        $(impl Bits for $t {
            fn bits(self) -> u64 {
                $get(self)
            }
        })*
    };
}
bits!(f32: |x: f32| u64::from(x.to_bits()), f64: |x: f64| x.to_bits(), u16: u64::from, i16: |x: i16| x as u64,
      u32: u64::from, u64: |x: u64| x);

impl Value for f32 {
    const NAME: &'static str = "f32";
    const ROUNDING: f64 = 6e-8;
    fn of(x: f32) -> f32 {
        x
    }
}

impl Value for u16 {
    const NAME: &'static str = "bf16";
    const ROUNDING: f64 = 4e-3;
    fn of(x: f32) -> u16 {
        // Nearest, ties to even.
        let bits = x.to_bits();
        ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
    }
}

/// Value of an f32 or of a bf16's bits.
pub trait Wide {
    fn value(self) -> f64;
}

impl<T: Real + Bits> Wide for T {
    fn value(self) -> f64 {
        let bits = self.bits() as u32;
        f64::from(f32::from_bits(if size_of::<T>() == 4 { bits } else { bits << 16 }))
    }
}

pub fn wide<T: Real + Bits>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.value()).collect()
}
