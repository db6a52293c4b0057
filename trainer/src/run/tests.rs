//! Notes against settings, and what a resume accepts.

use super::note::{Note, NoteBase};
use crate::settings::{Auto, Durability, LrSchedule, Recompute, Settings, Warmup};
use std::path::Path;

pub(crate) fn settings() -> Settings {
    Settings {
        model: None,
        shape: None,
        synthetic: false,
        data: Vec::new(),
        store: Vec::new(),
        direct_io: Default::default(),
        io: Default::default(),
        device: Default::default(),
        precision: Default::default(),
        vram: Auto::Auto,
        ram: Auto::Auto,
        steps: Some(60),
        epochs: None,
        batch: 4,
        micro_batch: Auto::Auto,
        seq_len: 128,
        lr: 0.1 + 0.2,
        lr_schedule: LrSchedule::Cosine,
        warmup: Warmup::Percent(5.0),
        min_lr_ratio: 0.1,
        max_grad_norm: Some(1.0),
        weight_decay: 0.1,
        betas: (0.9, 0.95),
        eps: 1e-8,
        seed: 7,
        threads: 2,
        shuffle: true,
        recompute: Recompute::Auto,
        checkpoint_every: Auto::Auto,
        durability: Durability::Full,
        no_nan_guard: false,
        page: Auto::Auto,
        disk: Auto::Auto,
        max_writes: None,
    }
}

fn base() -> NoteBase {
    NoteBase {
        run: "a".to_owned(),
        total_steps: 60,
        tokens_digest: "9-ff".to_owned(),
        folder: "/runs/a".to_owned(),
        settings: settings(),
    }
}

#[test]
fn note_comes_back_as_it_was() {
    let note = base().at(20);
    let again = Note::decode(&note.encode()).unwrap();
    assert_eq!((again.step, again.rows_taken, again.seed, again.total_steps), (20, 80, 7, 60));
    assert_eq!(again.optimizer, note.optimizer);
    base().check(&again, Path::new("run")).unwrap();
}

#[test]
fn note_of_another_version_is_refused() {
    let mut note = base().at(1);
    note.version += 1;
    assert!(Note::decode(&note.encode()).unwrap_err().contains("version"));
    assert!(Note::decode(b"{}").is_err());
}

#[test]
fn changes_of_the_identity_are_refused_by_name() {
    let note = Note::decode(&base().at(20).encode()).unwrap();
    let changed = |change: fn(&mut NoteBase)| {
        let mut base = base();
        change(&mut base);
        base.check(&note, Path::new("run")).map_err(|error| error.to_string())
    };
    for (change, part) in [
        ((|base| base.settings.lr = 0.3) as fn(&mut NoteBase), "settings.toml: lr"),
        (|base| base.settings.seed = 8, "settings.toml: seed"),
        (|base| base.settings.batch = 8, "settings.toml: batch"),
        (|base| base.settings.max_grad_norm = None, "settings.toml: max-grad-norm"),
        (|base| base.settings.shuffle = false, "settings.toml: no-shuffle"),
        (|base| base.tokens_digest = "9-fe".to_owned(), "tokens.bin"),
        (|base| base.run = "b".to_owned(), "run a"),
    ] {
        let text = changed(change).unwrap_err();
        assert!(text.contains(part) || part == "run a" && text.contains("run b"), "{text}");
    }
    changed(|base| {
        base.settings.threads = 1;
        base.settings.ram = Auto::Value(1 << 30);
        base.settings.checkpoint_every = Auto::Value(2);
        base.settings.model = Some("/moved".into());
    })
    .unwrap();
}
