//! The TOML file of `mt train`: its keys are the flags' names, its values become the texts that flags have.

use crate::failure::Failure;
use crate::layers::{Given, Origin};
use crate::options::{self, Choice, Kind};
use mt_trainer::Error;
use mt_trainer::input;
use std::collections::BTreeMap;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Reads the file.
///
/// # Errors
/// It cannot be read, is not TOML, has an unknown key (with a suggestion) or a value of a type that the option lacks.
pub fn read(path: &Path) -> Result<BTreeMap<&'static str, Given>, Failure> {
    let text = input::text(path, "a TOML file")?;
    let line_of = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
    let table = DeTable::parse(&text).map_err(|error| {
        let line = line_of(error.span().map_or(0, |span| span.start));
        Error::input(format!("{}:{line}", path.display()), "syntax", "TOML", error.message().to_owned())
    })?;
    let mut values = BTreeMap::new();
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        let name: &str = key.get_ref();
        let choice = options::find(name).ok_or_else(|| unknown(path, line, name))?;
        let texts = texts(choice, value.get_ref(), path).map_err(|expected| {
            Error::input(format!("{}:{line}", path.display()), name, expected, describe(value.get_ref()))
        })?;
        if !texts.is_empty() {
            values.insert(choice.name, Given { texts, origin: Origin::File { path: path.to_owned(), line } });
        }
    }
    Ok(values)
}

fn unknown(path: &Path, line: usize, name: &str) -> Error {
    Error::Input {
        place: format!("{}:{line}", path.display()),
        field: name.to_owned(),
        expected: "the name of a flag of `mt train`".to_owned(),
        found: "an unknown key".to_owned(),
        hint: options::nearest(name).map(|known| format!("did you mean {known}?")),
    }
}

/// The flag's texts for a value, or what was expected.
fn texts(choice: &Choice, value: &DeValue<'_>, file: &Path) -> Result<Vec<String>, &'static str> {
    let path_text = |text: &str| {
        if (choice.name, text) == ("data", options::SYNTHETIC) {
            return text.to_owned();
        }
        let base = file.parent().unwrap_or(Path::new(""));
        base.join(text).display().to_string()
    };
    match choice.kind {
        Kind::Switch => value.as_bool().map(|on| vec![on.to_string()]).ok_or("true or false"),
        Kind::Path => value.as_str().map(|text| vec![path_text(text)]).ok_or("a path as a string"),
        Kind::Paths => {
            let expected = "a path or an array of paths";
            if let Some(text) = value.as_str() {
                return Ok(vec![path_text(text)]);
            }
            let items = value.as_array().ok_or(expected)?;
            items.iter().map(|item| item.get_ref().as_str().map(path_text).ok_or(expected)).collect()
        }
        Kind::Single => {
            let expected = "a number or a string";
            let text = match value.as_array() {
                Some(items) => {
                    let parts: Option<Vec<String>> = items.iter().map(|item| scalar(item.get_ref())).collect();
                    parts.map(|parts| parts.join(","))
                }
                None => scalar(value),
            };
            text.map(|text| vec![text]).ok_or(expected)
        }
    }
}

/// The text of a number or string.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => match number.radix() {
            10 => Some(number.as_str().to_owned()),
            radix => i64::from_str_radix(number.as_str(), radix).ok().map(|number| number.to_string()),
        },
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Boolean(on) => on.to_string(),
        other => match scalar(other) {
            Some(text) => format!("\"{text}\""),
            None => format!("a value of type {}", other.type_str()),
        },
    }
}
