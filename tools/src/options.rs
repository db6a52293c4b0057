//! The options of `mt train`: one table that the flags, the TOML file, the defaults and `--print-config` share.
//!
//! A file's keys are the flags' names without the dashes. The flags' texts stand in `args.rs`; a test holds the two
//! lists together.

/// What a file may write for an option, and how its values become text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One number or string. An array of numbers is read as the flag's comma-separated text.
    Single,
    /// A string or an array of strings; the flag may be repeated.
    Paths,
    /// A path.
    Path,
    /// true or false; the flag takes no value.
    Switch,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Name of the flag without dashes, and of the file's key.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Its default as a flag would give it; empty: not set.
    pub default: &'static str,
    /// Its default where no model folder is given, if that is another.
    pub built_in: Option<&'static str>,
}

const fn choice(name: &'static str, kind: Kind, default: &'static str) -> Choice {
    Choice { name, kind, default, built_in: None }
}

const fn with_built_in(name: &'static str, default: &'static str, built_in: &'static str) -> Choice {
    Choice { name, kind: Kind::Single, default, built_in: Some(built_in) }
}

/// What stands for random ids in place of a file.
pub const SYNTHETIC: &str = "synthetic";

/// Every option of `mt train`, in the order of the help text.
pub const CHOICES: [Choice; 43] = [
    choice("model", Kind::Path, ""),
    choice("shape", Kind::Single, ""),
    choice("data", Kind::Paths, ""),
    choice("run", Kind::Path, ""),
    choice("store", Kind::Paths, ""),
    choice("direct-io", Kind::Single, "preferred"),
    choice("io", Kind::Single, "auto"),
    choice("device", Kind::Single, "auto"),
    choice("vram", Kind::Single, "auto"),
    choice("precision", Kind::Single, "auto"),
    with_built_in("ram", "auto", "64MiB"),
    with_built_in("steps", "", "60"),
    choice("epochs", Kind::Single, ""),
    choice("stop-at", Kind::Single, ""),
    choice("batch", Kind::Single, "4"),
    choice("micro-batch", Kind::Single, "auto"),
    with_built_in("seq-len", "512", "128"),
    with_built_in("lr", "2e-5", "2e-3"),
    choice("lr-schedule", Kind::Single, "cosine"),
    with_built_in("warmup", "5%", "20"),
    choice("min-lr-ratio", Kind::Single, "0.1"),
    choice("max-grad-norm", Kind::Single, "1"),
    choice("weight-decay", Kind::Single, "0.1"),
    choice("betas", Kind::Single, "0.9,0.95"),
    choice("eps", Kind::Single, "1e-8"),
    choice("seed", Kind::Single, "0"),
    choice("threads", Kind::Single, "auto"),
    choice("no-shuffle", Kind::Switch, "false"),
    choice("recompute", Kind::Single, "auto"),
    choice("checkpoint-every", Kind::Single, "auto"),
    choice("durability", Kind::Single, "full"),
    choice("no-nan-guard", Kind::Switch, "false"),
    choice("export", Kind::Path, ""),
    choice("discard", Kind::Switch, "false"),
    choice("page", Kind::Single, "auto"),
    choice("profile", Kind::Single, "auto"),
    choice("disk", Kind::Single, "auto"),
    choice("max-writes", Kind::Single, ""),
    choice("tbw", Kind::Single, ""),
    choice("trace", Kind::Path, ""),
    choice("trace-steps", Kind::Single, "3"),
    choice("json", Kind::Switch, "false"),
    choice("print-config", Kind::Switch, "false"),
];

/// The option of this name.
pub fn find(name: &str) -> Option<&'static Choice> {
    CHOICES.iter().find(|choice| choice.name == name)
}

/// Names that other programs have for these options.
const OTHER_NAMES: [(&str, &str); 8] = [
    ("learning-rate", "lr"),
    ("batch-size", "batch"),
    ("micro-batch-size", "micro-batch"),
    ("max-length", "seq-len"),
    ("sequence-length", "seq-len"),
    ("grad-clip", "max-grad-norm"),
    ("num-epochs", "epochs"),
    ("max-steps", "steps"),
];

/// The known name nearest to a mistyped one, if any is near enough to be meant.
pub fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let own = CHOICES.iter().map(|choice| (choice.name, choice.name));
    own.chain(OTHER_NAMES)
        .map(|(known, meant)| (strsim::damerau_levenshtein(&name, known), known.len(), meant))
        .min()
        .filter(|(distance, length, _)| *distance <= 1 + length / 3)
        .map(|(_, _, meant)| meant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_run_has_the_settings_chosen_for_its_model() {
        use mt_trainer::default_model;
        use mt_trainer::settings::Warmup;
        let built_in = |name| find(name).and_then(|choice| choice.built_in.or(Some(choice.default))).unwrap();
        assert_eq!(built_in("lr").parse(), Ok(default_model::LR));
        let Warmup::Steps(warmup) = default_model::WARMUP else { panic!("a number of steps") };
        assert_eq!(built_in("warmup").parse(), Ok(warmup));
        assert_eq!(built_in("steps").parse(), Ok(default_model::STEPS));
        assert_eq!(built_in("seq-len").parse(), Ok(default_model::SEQ_LEN));
        assert_eq!(built_in("batch").parse(), Ok(default_model::BATCH));
        assert_eq!(built_in("min-lr-ratio").parse(), Ok(default_model::MIN_LR_RATIO));
        assert_eq!(built_in("ram"), format!("{}MiB", default_model::RAM >> 20));
    }

    #[test]
    fn near_names_are_suggested() {
        for (typed, meant) in [
            ("batch_siz", Some("batch")),
            ("max_grad_norm", Some("max-grad-norm")),
            ("sede", Some("seed")),
            ("LR", Some("lr")),
            ("learning_rate", Some("lr")),
            ("warm-up", Some("warmup")),
            ("optimizer", None),
        ] {
            assert_eq!(nearest(typed), meant, "{typed}");
        }
        assert_eq!(nearest("colour-of-the-bar"), None);
    }
}
