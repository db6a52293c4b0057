//! Typed access to the fields of a JSON object, with errors that name file, field, expected and found.
//!
//! A field that is `null` counts as absent. Nothing is guessed: a field of another type is refused.

use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::path::Path;

/// A JSON object within a file.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: &'a Path,
    prefix: &'a str,
}

impl<'a> Fields<'a> {
    /// The object at the top of `path`.
    pub(super) fn top(map: &'a Map<String, Value>, path: &'a Path) -> Fields<'a> {
        Fields { map, path, prefix: "" }
    }

    /// The object in field `name`, if there is one.
    pub(super) fn object(&self, name: &'a str) -> Result<Option<Fields<'a>>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Fields { map, path: self.path, prefix: name })),
            Some(other) => Err(self.wrong(name, "an object", other)),
        }
    }

    /// The value, unless absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Whether the key is there, null or not.
    pub(super) fn has_key(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// A count of at least `min`, if present.
    pub(super) fn count_opt(&self, name: &str, min: usize) -> Result<Option<usize>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(n) if n >= min && u32::try_from(n).is_ok() => Ok(Some(n)),
            _ => Err(self.wrong(name, &format!("an integer from {min} to {}", u32::MAX), value)),
        }
    }

    /// A count of at least 1 that must be there.
    pub(super) fn count(&self, name: &str) -> Result<usize> {
        self.count_opt(name, 1)?.ok_or_else(|| self.absent(name, "an integer of at least 1"))
    }

    /// A positive finite number, if present.
    pub(super) fn positive_opt(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64() {
            Some(x) if x.is_finite() && x > 0.0 => Ok(Some(x)),
            _ => Err(self.wrong(name, "a positive number", value)),
        }
    }

    /// A positive finite number that must be there.
    pub(super) fn positive(&self, name: &str) -> Result<f64> {
        self.positive_opt(name)?.ok_or_else(|| self.absent(name, "a positive number"))
    }

    /// A truth value, or `default` if absent.
    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(b)) => Ok(*b),
            Some(other) => Err(self.wrong(name, "true or false", other)),
        }
    }

    /// A text, if present.
    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(other) => Err(self.wrong(name, "a string", other)),
        }
    }

    /// One id or a list of ids; empty if absent.
    pub(super) fn ids(&self, name: &str) -> Result<Vec<u32>> {
        let expected = "a token id or a list of token ids";
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let items = match value {
            Value::Array(items) => items.as_slice(),
            single => std::slice::from_ref(single),
        };
        items
            .iter()
            .map(|item| {
                item.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| self.wrong(name, expected, value))
            })
            .collect()
    }

    /// Refusal of a field that is missing.
    pub(super) fn absent(&self, name: &str, expected: &str) -> Error {
        self.refuse(name, expected, "nothing (the field is missing)")
    }

    /// Refusal of a field's value.
    pub(super) fn wrong(&self, name: &str, expected: &str, found: &Value) -> Error {
        self.refuse(name, expected, found.to_string())
    }

    /// Refusal with a description of what was found.
    pub(super) fn refuse(&self, name: &str, expected: &str, found: impl Into<String>) -> Error {
        let field = if self.prefix.is_empty() { name.to_owned() } else { format!("{}.{name}", self.prefix) };
        Error::input(self.path.display().to_string(), field, expected, found)
    }
}
