//! The layers that a setting can come from, merged: a flag wins over the file, the file over the default.
//!
//! Values stay text here, each with its origin, so that an error can name where its value stands.

use crate::failure::Failure;
use crate::options::{CHOICES, Choice, Kind};
use crate::{toml_file, values};
use clap::ArgMatches;
use clap::parser::ValueSource;
use mt_trainer::default_model;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where a value was said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Nowhere: the documented default.
    Default,
    /// In the TOML file.
    File {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
    },
    /// On the command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Flag => write!(f, "flag"),
        }
    }
}

/// A value and where it was said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// One text, or several for options that may be repeated. Never empty.
    pub texts: Vec<String>,
    /// Where it was said.
    pub origin: Origin,
}

/// The values in force, by option. An option without a value is not in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layers {
    values: BTreeMap<&'static str, Given>,
}

impl Layers {
    /// Merges flags, file and defaults.
    ///
    /// # Errors
    /// A file that cannot be read, is not TOML, or has a key or a type of value that no flag has.
    pub fn merge(flags: &ArgMatches, file: Option<&Path>) -> Result<Layers, Failure> {
        let mut values = match file {
            Some(path) => toml_file::read(path)?,
            None => BTreeMap::new(),
        };
        for choice in &CHOICES {
            if let Some(texts) = flag_texts(flags, choice) {
                values.insert(choice.name, Given { texts, origin: Origin::Flag });
            }
        }
        let mut layers = Layers { values };
        layers.add_defaults();
        Ok(layers)
    }

    /// The value of an option.
    pub fn get(&self, name: &str) -> Option<&Given> {
        self.values.get(name)
    }

    /// The text of an option that is not repeated.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|given| given.texts.first()).map(String::as_str)
    }

    /// The texts of an option that may be repeated.
    pub fn texts(&self, name: &str) -> &[String] {
        self.get(name).map_or(&[], |given| &given.texts)
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    /// Whether the user said it, in the file or as a flag.
    pub fn is_said(&self, name: &str) -> bool {
        self.get(name).is_some_and(|given| given.origin != Origin::Default)
    }

    /// Where the values come from that are not on the command line, by option, in words.
    pub fn places(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.values.iter().filter_map(|(name, given)| match &given.origin {
            Origin::Default => Some((*name, format!("default of --{name}"))),
            file @ Origin::File { .. } => Some((*name, file.to_string())),
            Origin::Flag => None,
        })
    }

    /// As `print`, as one JSON object.
    pub fn json(&self) -> Value {
        let shown = |choice: &Choice| {
            let given = self.get(choice.name);
            let origin = given.map_or(Origin::Default, |given| given.origin.clone()).to_string();
            let value = match given.map(|given| given.texts.as_slice()) {
                None => Value::Null,
                Some(texts) if choice.kind == Kind::Paths => json!(texts),
                Some(texts) => json!(texts[0]),
            };
            (choice.name.to_owned(), json!({"value": value, "origin": origin}))
        };
        Value::Object(CHOICES.iter().map(shown).collect())
    }

    /// A line for each option: name, value, origin.
    pub fn print(&self) -> String {
        let shown =
            |choice: &Choice| self.get(choice.name).map_or("not set".to_owned(), |given| given.texts.join(", "));
        let width = CHOICES.iter().map(|choice| shown(choice).len()).max().unwrap_or(0).min(60);
        let mut out = String::new();
        for choice in &CHOICES {
            let origin = self.get(choice.name).map_or(Origin::Default, |given| given.origin.clone());
            out.push_str(&format!("{:<16} = {:<width$}  # {origin}\n", choice.name, shown(choice)));
        }
        out
    }

    /// Fills in what neither flag nor file says. The built-in model has defaults of its own, and how long a run is
    /// depends on what else was said.
    fn add_defaults(&mut self) {
        let built_in = !self.is_said("model") && !self.is_said("shape");
        for choice in &CHOICES {
            let text = match choice.built_in {
                Some(text) if built_in => text,
                _ => choice.default,
            };
            let replaced = choice.name == "steps" && self.is_said("epochs");
            if !text.is_empty() && !replaced && !self.is_said(choice.name) {
                self.set_default(choice.name, text.to_owned());
            }
        }
        if !built_in && !self.is_said("steps") && !self.is_said("epochs") {
            self.set_default("epochs", "1".to_owned());
        }
        if built_in && !self.is_said("ram") {
            let said = self.text("threads").and_then(|text| text.parse().ok());
            let threads = said.unwrap_or_else(values::all_threads);
            self.set_default("ram", format!("{}MiB", default_model::ram(threads) >> 20));
        }
        // The run that a first try gives is over in a minute; any other commits as it goes.
        let is_first_try = built_in && !["data", "steps", "epochs"].iter().any(|name| self.is_said(name));
        if is_first_try
            && !self.is_said("checkpoint-every")
            && let Some(steps) = self.text("steps").filter(|steps| *steps != "0")
        {
            self.set_default("checkpoint-every", steps.to_owned());
        }
    }

    fn set_default(&mut self, name: &'static str, text: String) {
        self.values.insert(name, Given { texts: vec![text], origin: Origin::Default });
    }
}

/// The texts of an option's flag, if it was given on the command line.
fn flag_texts(flags: &ArgMatches, choice: &Choice) -> Option<Vec<String>> {
    let id = choice.name.replace('-', "_");
    if flags.value_source(&id) != Some(ValueSource::CommandLine) {
        return None;
    }
    match choice.kind {
        Kind::Switch => Some(vec![flags.get_flag(&id).to_string()]),
        Kind::Single | Kind::Path | Kind::Paths => Some(flags.get_many::<String>(&id)?.cloned().collect()),
    }
}

#[cfg(test)]
mod tests;
