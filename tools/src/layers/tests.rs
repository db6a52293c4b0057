use super::*;
use crate::args::Cli;
use clap::CommandFactory;

fn merge(flags: &[&str], file: Option<&Path>) -> Result<Layers, Failure> {
    let mut words = vec!["mt", "train"];
    words.extend(flags);
    let matches = Cli::command().try_get_matches_from(words).unwrap();
    Layers::merge(matches.subcommand_matches("train").unwrap(), file)
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

#[test]
fn every_option_is_a_flag_and_every_flag_an_option() {
    let command = Cli::command();
    let train = command.find_subcommand("train").unwrap();
    let flags: Vec<&str> = train.get_arguments().filter_map(|arg| arg.get_long()).filter(|l| *l != "help").collect();
    let names: Vec<&str> = CHOICES.iter().map(|choice| choice.name).collect();
    assert_eq!(flags, names);
}

#[test]
fn help_tells_every_default_as_the_table_has_it() {
    let command = Cli::command();
    let train = command.find_subcommand("train").unwrap();
    for choice in CHOICES {
        let arg = train.get_arguments().find(|arg| arg.get_long() == Some(choice.name)).unwrap();
        let help = arg.get_help().unwrap().to_string();
        let (_, default) = help.split_once("[default: ").unwrap_or_else(|| panic!("{}: {help}", choice.name));
        if choice.kind == Kind::Single {
            assert!(default.contains(choice.default), "{}: {help}", choice.name);
        }
        if let Some(text) = choice.built_in {
            assert!(default.contains(text), "{}: {help}", choice.name);
        }
    }
}

#[test]
fn flags_win_over_the_file_and_the_file_over_defaults() {
    let (_dir, path) = file("batch = 8\nseed = 3\n\nbetas = [0.8, 0.99]\nno-shuffle = true\n");
    let layers = merge(&["--seed", "5"], Some(&path)).unwrap();
    assert_eq!(layers.text("batch"), Some("8"));
    assert_eq!(layers.get("batch").unwrap().origin, Origin::File { path: path.clone(), line: 1 });
    assert_eq!((layers.text("seed"), &layers.get("seed").unwrap().origin), (Some("5"), &Origin::Flag));
    assert_eq!(layers.text("betas"), Some("0.8,0.99"));
    assert_eq!(layers.get("betas").unwrap().origin, Origin::File { path, line: 4 });
    assert!(layers.is_on("no-shuffle"));
    assert_eq!((layers.text("eps"), &layers.get("eps").unwrap().origin), (Some("1e-8"), &Origin::Default));
}

#[test]
fn paths_in_the_file_are_relative_to_it() {
    let (dir, path) = file("data = [\"a.txt\", \"/b.txt\"]\nmodel = \"m\"\n");
    let layers = merge(&[], Some(&path)).unwrap();
    assert_eq!(layers.texts("data"), [dir.path().join("a.txt").display().to_string(), "/b.txt".to_owned()]);
    assert_eq!(layers.text("model"), Some(dir.path().join("m").display().to_string().as_str()));
}

#[test]
fn unknown_keys_and_wrong_types_are_refused_with_the_line() {
    for (text, parts) in [
        ("batch = 8\nlearning_rate = 1\n", vec!["c.toml:2", "learning_rate"]),
        ("\nwarm-up = 3", vec!["c.toml:2", "warmup"]),
        ("max_grad_norm = 1", vec!["c.toml:1", "max-grad-norm"]),
        ("batch = true", vec!["c.toml:1", "batch", "true"]),
        ("no-shuffle = 1", vec!["c.toml:1", "no-shuffle", "true or false"]),
        ("[train]\nbatch = 1", vec!["c.toml:1", "train"]),
        ("batch = = 2", vec!["c.toml:1"]),
        ("seed = 1979-05-27", vec!["c.toml:1", "seed"]),
    ] {
        let (_dir, path) = file(text);
        let failure = merge(&[], Some(&path)).unwrap_err();
        assert_eq!(failure.code, 2);
        for part in parts {
            assert!(failure.text.contains(part), "{text}: {}", failure.text);
        }
    }
}

#[test]
fn the_length_of_a_run_follows_what_was_said() {
    let length = |flags: &[&str]| {
        let layers = merge(flags, None).unwrap();
        (layers.text("steps").map(str::to_owned), layers.text("epochs").map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(length(&[]), (some("60"), None));
    assert_eq!(length(&["--epochs", "2"]), (None, some("2")));
    assert_eq!(length(&["--model", "m"]), (None, some("1")));
    assert_eq!(length(&["--model", "m", "--steps", "9"]), (some("9"), None));
    let commits = |flags: &[&str]| merge(flags, None).unwrap().text("checkpoint-every").map(str::to_owned);
    // A commit at the end alone is for the run that a first try gives.
    assert_eq!((commits(&[]), commits(&["--ram", "80MiB"])), (some("60"), some("60")));
    for flags in [["--steps", "9"], ["--epochs", "1"], ["--data", "a.txt"], ["--model", "m"]] {
        assert_eq!(commits(&flags), some("auto"), "{flags:?}");
    }
}

#[test]
fn print_names_the_origin_of_each_value() {
    let (_dir, path) = file("lr = 1e-4\n");
    let text = merge(&["--batch", "2"], Some(&path)).unwrap().print();
    let line = |name: &str| text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap().to_owned();
    assert!(line("batch").contains("= 2") && line("batch").ends_with("# flag"));
    assert!(line("lr").contains("= 1e-4") && line("lr").ends_with("c.toml:1"));
    assert!(line("eps").ends_with("# default"));
    assert!(line("export").contains("not set"));
}
