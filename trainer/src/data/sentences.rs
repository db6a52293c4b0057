//! The built-in data: English sentences from a small seeded grammar.
//!
//! Made so that learning shows within some dozen steps of a byte-level model, and goes on for longer than that: few
//! words (spelling is learned first), then fixed word order, then what takes looking back: verbs agree with their
//! subjects, also across relative clauses within each other; an echo repeats a clause; sums of number words come out
//! right.
//!
//! ```text
//! sentence = clause | name "says that" clause | "if" clause "then" the same clause | sum | succession
//! clause   = subject verb [object] [adverb]          the verb agrees with the subject
//! subject  = the|number [adjective] noun ["that" verb object | "that" subject verb]
//! sum      = "two and three make five"               succession = "after three comes four"
//! ```
//!
//! One sentence a line, lower case, each with a full stop. The text is a function of seed and length.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::fmt::Write;

const NUMBERS: [&str; 7] = ["zero", "one", "two", "three", "four", "five", "six"];
const NOUNS: [&str; 4] = ["cat", "dog", "bird", "king"];
const ADJECTIVES: [&str; 2] = ["old", "small"];
const NAMES: [&str; 2] = ["anna", "tom"];
/// Verbs without an object.
const ALONE: [&str; 3] = ["sleep", "sing", "run"];
/// Verbs with an object.
const WITH_OBJECT: [&str; 3] = ["see", "like", "find"];
const ADVERBS: [&str; 2] = ["now", "here"];

/// `bytes` bytes of sentences (ASCII; the last one may be cut off).
pub fn default_text(seed: u64, bytes: usize) -> String {
    let mut generator = Generator { rng: ChaCha8Rng::seed_from_u64(seed), out: String::with_capacity(bytes + 256) };
    while generator.out.len() < bytes {
        generator.sentence();
    }
    generator.out.truncate(bytes);
    generator.out
}

/// Whether a subject takes the verb's form with s.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    One,
    Many,
}

struct Generator {
    rng: ChaCha8Rng,
    out: String,
}

impl Generator {
    fn sentence(&mut self) {
        match self.below(10) {
            0..5 => self.clause(2),
            5 => {
                let name = self.pick(&NAMES);
                self.say(name);
                self.say("says that");
                self.clause(1);
            }
            6 => self.echo(),
            7 | 8 => self.sum(),
            _ => self.succession(),
        }
        // Words end with a space each; the last space gives way to the full stop.
        self.out.pop();
        self.out.push_str(".\n");
    }

    fn clause(&mut self, depth: u32) {
        let number = self.subject(depth);
        self.predicate(number);
    }

    /// "if the dog runs then the dog runs": the second half is known word for word.
    fn echo(&mut self) {
        self.say("if");
        let start = self.out.len();
        self.clause(0);
        let clause = self.out[start..].to_string();
        self.say("then");
        self.out.push_str(&clause);
    }

    fn sum(&mut self) {
        let total = self.below(NUMBERS.len());
        let first = self.below(total + 1);
        let second = total - first;
        for word in [NUMBERS[first], "and", NUMBERS[second], "make", NUMBERS[total]] {
            self.say(word);
        }
    }

    fn succession(&mut self) {
        let n = self.below(NUMBERS.len() - 1);
        for word in ["after", NUMBERS[n], "comes", NUMBERS[n + 1]] {
            self.say(word);
        }
    }

    /// A noun phrase; up to `depth` relative clauses within each other.
    fn subject(&mut self, depth: u32) -> Number {
        let number = if self.below(2) == 0 { Number::One } else { Number::Many };
        match (number, self.below(3)) {
            (Number::One, 0) => self.say("one"),
            (Number::Many, 0) => {
                let n = 2 + self.below(4);
                self.say(NUMBERS[n]);
            }
            _ => self.say("the"),
        }
        if self.below(4) == 0 {
            let adjective = self.pick(&ADJECTIVES);
            self.say(adjective);
        }
        let noun = self.pick(&NOUNS);
        match number {
            Number::One => self.say(noun),
            Number::Many => write!(self.out, "{noun}s ").expect("a string takes everything"),
        }
        if depth > 0 && self.below(4) == 0 {
            self.relative(number, depth - 1);
        }
        number
    }

    fn relative(&mut self, number: Number, depth: u32) {
        self.say("that");
        if self.below(2) == 0 {
            self.verb(&WITH_OBJECT, number);
            self.subject(depth);
        } else {
            let inner = self.subject(depth);
            self.verb(&WITH_OBJECT, inner);
        }
    }

    fn predicate(&mut self, number: Number) {
        if self.below(2) == 0 {
            self.verb(&ALONE, number);
            if self.below(3) == 0 {
                let adverb = self.pick(&ADVERBS);
                self.say(adverb);
            }
        } else {
            self.verb(&WITH_OBJECT, number);
            self.subject(0);
        }
    }

    fn verb(&mut self, verbs: &[&'static str], number: Number) {
        let verb = self.pick(verbs);
        match number {
            Number::One => write!(self.out, "{verb}s ").expect("a string takes everything"),
            Number::Many => self.say(verb),
        }
    }

    fn say(&mut self, word: &str) {
        self.out.push_str(word);
        self.out.push(' ');
    }

    fn pick(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len())]
    }

    /// A number below `n`, each equally likely but for one part in 2^32.
    fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.rng.next_u32()) * n as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests;
