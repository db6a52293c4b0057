//! The command as it was given, so that a refusal can end with one that works.

use std::collections::BTreeMap;

/// Words of a command line, the program's name first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandLine {
    words: Vec<String>,
    /// Where flags have their values from, if not from the command line.
    places: BTreeMap<String, String>,
}

impl CommandLine {
    /// From the words as the process got them.
    pub fn new(words: Vec<String>) -> CommandLine {
        CommandLine { words, places: BTreeMap::new() }
    }

    /// Says where a flag's value comes from, in words: a default, a line of a file.
    pub fn place(&mut self, flag: &str, place: String) {
        self.places.insert(flag.to_owned(), place);
    }

    /// Where a flag's value comes from, in words.
    pub fn place_of(&self, flag: &str) -> String {
        self.places.get(flag).cloned().unwrap_or_else(|| "command line".to_owned())
    }

    /// The command with `--flag value`, in place of the flag's value if it was given; quoted for a shell.
    pub fn with(&self, flag: &str, value: &str) -> String {
        self.with_all(&[(flag, value.to_owned())])
    }

    /// As [`CommandLine::with`], for several flags.
    pub fn with_all(&self, flags: &[(&str, String)]) -> String {
        let long = |flag: &str| format!("--{flag}");
        let is_one = |word: &str| flags.iter().any(|(flag, _)| word == long(flag));
        let is_joined = |word: &str| flags.iter().any(|(flag, _)| word.starts_with(&format!("--{flag}=")));
        let mut words = Vec::with_capacity(self.words.len() + 2 * flags.len());
        let mut rest = self.words.iter();
        while let Some(word) = rest.next() {
            if is_one(word) {
                // Its value follows.
                rest.next();
            } else if !is_joined(word) {
                words.push(quoted(word));
            }
        }
        for (flag, value) in flags {
            words.push(long(flag));
            words.push(quoted(value));
        }
        words.join(" ")
    }
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> CommandLine {
        CommandLine::new(text.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn flag_is_replaced_or_added() {
        assert_eq!(line("mt train --data a").with("ram", "9MiB"), "mt train --data a --ram 9MiB");
        assert_eq!(line("mt train --ram 1MiB --data a").with("ram", "9MiB"), "mt train --data a --ram 9MiB");
        assert_eq!(line("mt train --ram=1MiB --data a").with("ram", "9MiB"), "mt train --data a --ram 9MiB");
        let both = line("mt plan --ram 1MiB --disk=2MiB").with_all(&[("ram", "9MiB".into()), ("disk", "8MiB".into())]);
        assert_eq!(both, "mt plan --ram 9MiB --disk 8MiB");
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("/a/b-1.txt"), "/a/b-1.txt");
    }
}
