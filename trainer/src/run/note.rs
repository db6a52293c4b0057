//! The note of a commit: everything that a resume needs beside the pages, so that nothing can tear apart from them.

use crate::error::{Error, Result};
use crate::settings::Settings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;

/// Largest note the store takes.
pub const BYTES_MAX: usize = 64 << 10;
/// Version of the note's fields.
const VERSION: u32 = 1;

/// The note.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// Version of these fields.
    pub version: u32,
    /// The run's id, which is its store's.
    pub run: String,
    /// The run's folder when this was written, absolute: tells a folder that moved from one that was copied.
    #[serde(default)]
    pub folder: String,
    /// Optimizer steps in the committed state.
    pub step: u64,
    /// Rows taken from the data so far; the next step takes the rows from there.
    pub rows_taken: u64,
    /// Seed of the initialization and of the order of rows.
    pub seed: u64,
    /// Steps of the whole run, which the learning rate depends on.
    pub total_steps: u64,
    /// Digest of the token ids.
    pub tokens_digest: String,
    /// Scalars of the optimizer.
    pub optimizer: Optimizer,
    /// The settings that decide the numbers, by name.
    pub settings: Map<String, Value>,
}

/// Scalars of AdamW; its bias corrections follow from them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Optimizer {
    /// Updates applied.
    pub updates: u64,
    /// Decay rates of the moments.
    pub betas: (f64, f64),
}

/// What stays the same in all notes of a process.
#[derive(Clone, PartialEq, Debug)]
pub struct NoteBase {
    /// The run's id.
    pub run: String,
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Digest of the token ids.
    pub tokens_digest: String,
    /// The run's folder, absolute.
    pub folder: String,
    /// The settings in force.
    pub settings: Settings,
}

impl NoteBase {
    /// The note of the state after `step`.
    pub fn at(&self, step: u64) -> Note {
        Note {
            version: VERSION,
            run: self.run.clone(),
            folder: self.folder.clone(),
            step,
            rows_taken: step * self.settings.batch,
            seed: self.settings.seed,
            total_steps: self.total_steps,
            tokens_digest: self.tokens_digest.clone(),
            optimizer: Optimizer { updates: step, betas: self.settings.betas },
            settings: self.settings.identity(),
        }
    }

    /// Checks that a commit's note belongs to this run, data and identity.
    ///
    /// # Errors
    /// `Input` naming what differs, with both values.
    pub fn check(&self, found: &Note, folder: &Path) -> Result<()> {
        let place = folder.display().to_string();
        let differs = |what: &str, expected: &str, now: &str| Error::Input {
            place: place.clone(),
            field: what.to_owned(),
            expected: format!("{expected}, as in the commit of step {}", found.step),
            found: now.to_owned(),
            hint: Some("set it back; another value needs a new run".to_owned()),
        };
        if found.run != self.run {
            return Err(Error::input(
                place,
                "store",
                format!("that of run {}", self.run),
                format!("run {}", found.run),
            ));
        }
        // Both sides pass through text, so that a number is compared as it was written.
        let fresh = Note::decode(&self.at(found.step).encode()).expect("a note that was just encoded");
        for (name, expected) in &found.settings {
            let now = fresh.settings.get(name);
            if now != Some(expected) {
                let now = now.map_or("nothing".to_owned(), Value::to_string);
                return Err(differs(&format!("settings.toml: {name}"), &expected.to_string(), &now));
            }
        }
        if found.tokens_digest != self.tokens_digest {
            return Err(differs("tokens.bin", &found.tokens_digest, &self.tokens_digest));
        }
        Ok(())
    }
}

impl Note {
    /// As bytes for the store.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = serde_json::to_vec(self).expect("a note holds only numbers and text");
        assert!(bytes.len() <= BYTES_MAX, "settings are far smaller than a note may be");
        bytes
    }

    /// From the store's bytes.
    ///
    /// # Errors
    /// What is wrong, as text.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Note, String> {
        let note: Note = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if note.version != VERSION {
            return Err(format!("note version {} where this program reads {VERSION}", note.version));
        }
        Ok(note)
    }
}
