use super::tokenizer::tests::{byte_level, tiny};
use super::*;
use crate::batch::NO_TARGET;
use serde_json::json;

/// A folder with data files, a model and a run.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { folder: tempfile::tempdir().unwrap() };
        for sub in ["model", "run", "run2"] {
            std::fs::create_dir(place.path(sub)).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn with_tokenizer(self) -> Place {
        std::fs::write(self.path("model/tokenizer.json"), tiny(byte_level(true)).to_string()).unwrap();
        std::fs::write(self.path("model/tokenizer_config.json"), r#"{"eos_token": "<eos>"}"#).unwrap();
        self
    }

    fn options(&self, files: &[(&str, &[u8])]) -> DataOptions {
        let mut paths = Vec::new();
        for (name, content) in files {
            std::fs::write(self.path(name), content).unwrap();
            paths.push(self.path(name));
        }
        DataOptions {
            source: Source::Files(paths),
            model: Some(self.path("model")),
            config_eos: Vec::new(),
            vocab: 276,
            seq_len: 4,
            batch: 2,
            rows_per_micro: 2,
            seed: 1,
            shuffle: false,
            run: self.path("run"),
        }
    }
}

fn open(options: &DataOptions) -> Result<Data> {
    Data::open(options, &mut |_, _| Ok(()))
}

fn all_ids(data: &Data) -> Vec<u32> {
    data.cache.read(0, data.cache.ids() as usize).unwrap()
}

fn refusal(options: &DataOptions) -> String {
    let error = open(options).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(!options.run.join(CACHE_NAME).exists() || error.to_string().contains("began with"), "{error}");
    error.to_string()
}

#[test]
fn bytes_end_to_end() {
    let place = Place::new();
    let options = place.options(&[("a.txt", b"\xEF\xBB\xBFabcd\r\nghijk")]);
    let data = open(&options).unwrap();
    let report = data.report();
    assert_eq!((report.documents, report.ids, report.rows, report.dropped_ids, report.eos), (1, 11, 2, 3, None));
    assert!(report.warnings.is_empty());
    let batch = data.batch(1).unwrap();
    assert_eq!(batch.micro.len(), 1);
    assert_eq!(batch.micro[0].ids, b"abcd\r\ngh".map(u32::from));
    assert_eq!(batch.target_count(), 6);
    assert_eq!(batch, data.batch(2).unwrap());
    assert_eq!(data.order().steps_for_epochs(3, options.batch), 3);
}

#[test]
fn a_large_file_has_the_ids_of_encoding_it_whole() {
    let place = Place::new().with_tokenizer();
    let text = "In the  beginning, and then 12 more.\r\n\nsome <eos> 'll  \n".repeat(6000);
    let data = open(&place.options(&[("a.txt", text.as_bytes())])).unwrap();
    let tokenizer = Tokenizer::load(&place.path("model")).unwrap().unwrap();
    assert!(tokenizer.last_cut(&text).is_some());
    assert_eq!(all_ids(&data), tokenizer.encode(&text).unwrap());
}

#[test]
fn several_files_are_documents_closed_by_eos() {
    let place = Place::new().with_tokenizer();
    let files: [(&str, &[u8]); 5] = [("a", b"abc"), ("b", b""), ("c", b"xy"), ("d", b"\xEF\xBB\xBF"), ("e", b"zz")];
    let options = place.options(&files);
    let data = open(&options).unwrap();
    let letter = |c: char| c as u32 - 0x21 + 3 + 0x21;
    let ids = ['a', 'b', 'c', '\0', 'x', 'y', '\0', 'z', 'z', '\0'].map(|c| if c == '\0' { 2 } else { letter(c) });
    assert_eq!(all_ids(&data), ids);
    assert_eq!(data.cache.description().starts, [0, 4, 7]);
    let report = data.report();
    assert_eq!((report.documents, report.empty_files, report.rows, report.dropped_ids), (3, 2, 2, 2));
    assert_eq!(report.eos, Some(2));
    let m = &data.batch(1).unwrap().micro[0];
    assert_eq!(m.targets, [ids[1], ids[2], 2, NO_TARGET, ids[5], 2, NO_TARGET, NO_TARGET]);
    assert_eq!(m.positions, [0, 1, 2, 3, 0, 1, 2, 0]);
    assert_eq!(m.document, [0, 0, 0, 0, 0, 0, 0, 3]);
    // A single file is not closed.
    let mut single = place.options(&[("a", b"abcdef")]);
    single.run = place.path("run2");
    assert_eq!(open(&single).unwrap().report().ids, 6);
}

#[test]
fn documents_without_an_eos_still_start_anew() {
    let place = Place::new();
    let mut options = place.options(&[("a", b"abc"), ("b", b"defgh")]);
    options.config_eos = vec![2];
    let data = open(&options).unwrap();
    assert_eq!(all_ids(&data), b"abcdefgh".map(u32::from));
    assert_eq!(data.report().eos, None);
    let m = &data.batch(1).unwrap().micro[0];
    assert_eq!(m.document, [0, 0, 0, 3, 0, 0, 0, 0]);
    assert_eq!(m.positions, [0, 1, 2, 0, 0, 1, 2, 3]);
}

#[test]
fn too_little_data_is_refused_with_counts() {
    let place = Place::new();
    let text = refusal_after_build(&place.options(&[("a", b"abc"), ("b", b"")]));
    assert!(text.contains("at least one row of 4 ids") && text.contains("3 ids"), "{text}");
    assert!(text.contains("files: 2, empty: 1") && text.contains("--seq-len 3"), "{text}");
    let place = Place::new();
    let text = refusal_after_build(&place.options(&[("a", b""), ("b", b"\xEF\xBB\xBF")]));
    assert!(text.contains("0 ids") && text.contains("empty: 2"), "{text}");
}

fn refusal_after_build(options: &DataOptions) -> String {
    let error = open(options).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

/// Fault kind B05 (text): the refusals reach the user, and their unbroken twins train.
#[test]
fn files_that_are_not_text_are_refused() {
    for bytes in [&b"\xFF\xFEa\0b\0"[..], b"\xFE\xFF\0a", b"\x1F\x8B\x08\0", b"abcdefgh\xC0", b"abcdefgh\xE2\x82"] {
        let place = Place::new();
        let options = place.options(&[("good.txt", b"abcdefgh"), ("bad.txt", bytes)]);
        let text = refusal(&options);
        assert!(text.contains("bad.txt: byte "), "{text}");
        assert_eq!(std::fs::read_dir(place.path("run")).unwrap().count(), 0);
    }
    for bytes in [&b"abcdefgh"[..], b"\xEF\xBB\xBFabcdefgh"] {
        let place = Place::new();
        let data = open(&place.options(&[("good.txt", bytes)])).unwrap();
        assert_eq!(all_ids(&data), b"abcdefgh".map(u32::from));
    }
}

#[test]
fn bytes_beyond_the_embedding_are_refused() {
    let place = Place::new();
    let mut options = place.options(&[("a.txt", "ab\ncd\u{e9}".as_bytes())]);
    options.vocab = 128;
    let text = refusal(&options);
    assert!(text.contains("a.txt: line 2, byte 5: expected a byte below 128") && text.contains("195"), "{text}");
    options.vocab = 196;
    assert!(open(&options).is_ok());
}

/// Fault kind A08: two sizes of a vocabulary.
#[test]
fn embedding_and_tokenizer_of_different_sizes() {
    // Id 275 is carriage return with line feed, 258 the byte 0xFF; the text reaches 275 in its third line.
    let text = b"one two\nthree four\nfive\r\n\nsix";
    let place = Place::new().with_tokenizer();
    let mut options = place.options(&[("a.txt", text)]);
    options.vocab = 275;
    let message = refusal(&options);
    assert!(message.contains("a.txt: line 3, byte 23") && message.contains("a token id of 275"), "{message}");
    // No text reaches it: only a warning.
    let mut options = place.options(&[("a.txt", b"one two\nthree four\nfive\nsix")]);
    options.vocab = 275;
    let data = open(&options).unwrap();
    assert_eq!(data.report().warnings.len(), 1);
    let warning = &data.report().warnings[0];
    assert!(warning.contains("276 ids, the embedding only 275 rows"), "{warning}");
    // More rows than ids: nothing to say.
    options.vocab = 576;
    options.run = place.path("run2");
    assert!(open(&options).unwrap().report().warnings.is_empty());
}

#[test]
fn the_place_of_a_large_id_is_that_of_the_file() {
    let place = Place::new().with_tokenizer();
    let lead = "the line\n".repeat(20_000);
    let mut options = place.options(&[("a.txt", format!("{lead}ab\r\n").as_bytes())]);
    options.vocab = 275;
    let message = refusal(&options);
    assert!(message.contains(&format!("line 20001, byte {}", lead.len() + 2)), "{message}");
}

#[test]
fn an_end_of_sequence_beyond_the_embedding_matters_only_if_used() {
    let place = Place::new();
    let mut options = place.options(&[("a", b"abcd"), ("b", b"efgh")]);
    options.config_eos = vec![300];
    assert!(refusal(&options).contains("end of sequence"));
    let mut options = place.options(&[("a", b"abcd")]);
    options.config_eos = vec![300];
    assert!(open(&options).is_ok());
}

#[test]
fn a_resumed_run_takes_the_same_batches_from_the_cache() {
    let place = Place::new().with_tokenizer();
    let text = "the cat and the dog\n".repeat(40);
    let mut options = place.options(&[("a.txt", text.as_bytes()), ("b.txt", b"one more")]);
    (options.shuffle, options.batch, options.rows_per_micro) = (true, 5, 2);
    let data = open(&options).unwrap();
    let whole: Vec<_> = (1..=40).map(|step| data.batch(step).unwrap()).collect();
    assert_eq!(whole[0].micro.iter().map(|m| m.rows).collect::<Vec<_>>(), [2, 2, 1]);
    drop(data);
    // Neither the data nor the tokenizer is needed any more.
    for name in ["a.txt", "b.txt", "model/tokenizer.json"] {
        std::fs::remove_file(place.path(name)).unwrap();
    }
    let data = open(&options).unwrap();
    assert_eq!(data.batch(40).unwrap(), whole[39]);
    assert_eq!(data.batch(17).unwrap(), whole[16]);
    assert_eq!(data.report().documents, 2);
}

#[test]
fn a_resume_on_changed_data_is_refused() {
    let place = Place::new().with_tokenizer();
    let options = place.options(&[("a.txt", b"abcdefgh"), ("b.txt", b"ijklmnop")]);
    open(&options).unwrap();
    let file = place.path("b.txt");
    std::fs::write(&file, b"ijklmnoq").unwrap();
    let text = refusal(&options);
    assert!(text.contains("b.txt: content: expected what the run began with"), "{text}");
    std::fs::write(&file, b"ijklmnop").unwrap();
    assert!(open(&options).is_ok());

    let mut other = options.clone();
    other.source = Source::Files(vec![place.path("a.txt")]);
    assert!(refusal(&other).contains("--data"));
    other = options.clone();
    other.vocab += 1;
    assert!(refusal(&other).contains("rows of the embedding"));
    let mut json = tiny(byte_level(true));
    json["normalizer"] = json!({"type": "NFC"});
    std::fs::write(place.path("model/tokenizer.json"), json.to_string()).unwrap();
    assert!(refusal(&options).contains("tokenizer.json"));
}

#[test]
fn built_in_sentences() {
    let place = Place::new();
    let mut options = place.options(&[]);
    (options.source, options.model, options.vocab) = (Source::Sentences { seed: 3, bytes: 1001 }, None, 256);
    let data = open(&options).unwrap();
    let expected: Vec<u32> = sentences::default_text(3, 1001).bytes().map(u32::from).collect();
    assert_eq!(all_ids(&data), expected);
    assert_eq!((data.report().rows, data.report().dropped_ids), (250, 1));
    assert!(open(&options).is_ok());
    options.source = Source::Sentences { seed: 4, bytes: 1001 };
    assert!(refusal(&options).contains("Sentences"));
}

#[test]
fn random_ids_are_a_function_of_the_seed_and_reach_every_row_of_the_embedding() {
    let place = Place::new();
    let mut options = place.options(&[]);
    (options.source, options.model, options.vocab) = (Source::Random { seed: 3, ids: 100_000 }, None, 300);
    let ids = all_ids(&open(&options).unwrap());
    assert_eq!(ids.len(), 100_000);
    let mut counts = [0; 300];
    ids.iter().for_each(|&id| counts[id as usize] += 1);
    assert!(counts.iter().all(|count| (200..480).contains(count)), "{counts:?}");
    assert_eq!(all_ids(&open(&options).unwrap()), ids);
    options.source = Source::Random { seed: 4, ids: 100_000 };
    assert!(refusal(&options).contains("Random"));
    options.run = place.path("run2");
    assert_ne!(all_ids(&open(&options).unwrap()), ids);
}

#[test]
fn rows_without_a_target_are_left_out_and_counted() {
    let place = Place::new();
    // Rows of 4: "abcd", then four documents of one id twice with a row of two documents between them, then "mn".
    let contents = ["abcd", "e", "f", "g", "h", "ijk", "l", "m", "n", "o", "p", "qr"];
    let names: Vec<String> = (0..contents.len()).map(|i| format!("{i:02}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().zip(contents).map(|(n, c)| (n.as_str(), c.as_bytes())).collect();
    let mut options = DataOptions { batch: 1, ..place.options(&files) };
    let data = open(&options).unwrap();
    let report = data.report();
    assert_eq!((report.rows, report.skipped_rows, report.dropped_ids), (2, 2, 2));
    assert!(report.warnings.iter().any(|w| w.contains("2 of 4 rows")), "{:?}", report.warnings);
    let first = |step| data.batch(step).unwrap().micro[0].ids[0] as u8;
    assert_eq!([1, 2, 3].map(first), *b"aia");
    options.run = place.path("run2");
    options.source = Source::Files((0..8).map(|i| place.path(["01", "02", "03", "04"][i % 4])).collect());
    let text = open(&options).unwrap_err().to_string();
    assert!(text.contains("documents of one id"), "{text}");
}

#[test]
fn reading_tells_how_far_it_is_and_ends_when_told_to() {
    let place = Place::new();
    let options = place.options(&[("a", &[b'a'; 50_000]), ("b", b""), ("c", &[b'c'; 20_000])]);
    let mut seen = Vec::new();
    let stopped = Data::open(&options, &mut |done, all| {
        assert_eq!(all, 70_000);
        seen.push(done);
        if done < 60_000 { Ok(()) } else { Err(Error::Stopped { hint: None }) }
    });
    assert_eq!(stopped.unwrap_err().exit_code(), 130);
    assert!(seen.is_sorted() && seen.len() > 3 && seen.contains(&50_000), "{seen:?}");
    assert!(!options.run.join(CACHE_NAME).exists());
}
