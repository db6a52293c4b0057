//! The files of an export, without a store: what other readers find in them, and what happens when writing fails.

use super::super::async_files::{self, Files, OutFile, StdFiles, Work};
use super::super::dtype::Dtype;
use super::super::writer::{FilesPlan, OutPlan, WeightsWriter};
use super::super::{Source, carry};
use super::{Draft, assert_says, bits, config_folder, model, read_all, refusal, single_folder};
use crate::error::{Error, Result};
use crate::model::{Manifest, ModelConfig};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// Writes all weights of a source, in blocks that go over the borders of tensors.
struct Copy<'a> {
    source: &'a Source,
    manifest: &'a Manifest,
    plan: &'a FilesPlan,
    dir: &'a Path,
}

impl Work for Copy<'_> {
    type Output = Result<()>;

    async fn run<F: Files>(self, files: &F) -> Result<()> {
        let mut writer = WeightsWriter::new(files, self.dir, self.plan);
        for (index, unit) in self.manifest.units.iter().enumerate() {
            for start in (0..unit.elements).step_by(999) {
                let mut block = vec![0.0; 999.min(unit.elements - start)];
                self.source.read_unit(index, start, &mut block, 1)?;
                writer.push(&block).await?;
            }
        }
        writer.finish();
        if let Some((name, text)) = self.plan.index() {
            std::fs::write(self.dir.join(name), text).unwrap();
        }
        Ok(())
    }
}

fn copy(source: &Source, manifest: &Manifest, dtype: Option<Dtype>, limit: Option<u64>, dir: &Path) -> FilesPlan {
    let record = source.record();
    let plan = FilesPlan::new(manifest, |t| dtype.unwrap_or_else(|| record.tensors[&t.name]), limit);
    async_files::block_on(Copy { source, manifest, plan: &plan, dir }).unwrap().0.unwrap();
    plan
}

fn mixed(name: &str) -> Dtype {
    match name {
        "model.embed_tokens.weight" => Dtype::F16,
        name if name.contains("norm") || name.contains("bias") => Dtype::F32,
        _ => Dtype::Bf16,
    }
}

fn source_of(config: &ModelConfig, manifest: &Manifest, draft: &Draft) -> Source {
    Source::open(single_folder(config, draft).path(), config, manifest, 0).unwrap()
}

#[test]
fn a_checkpoint_of_the_formats_own_library_comes_back_byte_for_byte() {
    for (edits, dtype_of) in [
        (json!({}), (|_| Dtype::F32) as fn(&str) -> Dtype),
        (json!({"model_type": "qwen2", "tie_word_embeddings": true}), |_| Dtype::Bf16),
        (json!({"attention_bias": true, "mlp_bias": true}), mixed),
    ] {
        let (config, manifest) = model(edits);
        let draft = Draft::new(&manifest, dtype_of);
        let views = draft.tensors.iter().map(|t| {
            let dtype = match Dtype::from_name(&t.dtype).unwrap() {
                Dtype::F16 => safetensors::Dtype::F16,
                Dtype::Bf16 => safetensors::Dtype::BF16,
                Dtype::F32 => safetensors::Dtype::F32,
            };
            (t.name.clone(), safetensors::tensor::TensorView::new(dtype, t.shape.clone(), &t.bytes).unwrap())
        });
        let metadata = Some([("format".to_string(), "pt".to_string())].into());
        let bytes = safetensors::serialize(views, metadata).unwrap();
        let dir = config_folder(&config);
        std::fs::write(dir.path().join("model.safetensors"), &bytes).unwrap();
        let source = Source::open(dir.path(), &config, &manifest, 0).unwrap();
        let out = tempfile::tempdir().unwrap();
        copy(&source, &manifest, None, None, out.path());
        assert!(std::fs::read(out.path().join("model.safetensors")).unwrap() == bytes);
    }
}

#[test]
fn shards_and_their_index_hold_every_tensor_once() {
    let (config, manifest) = model(json!({}));
    let source = source_of(&config, &manifest, &Draft::new(&manifest, mixed));
    let values = read_all(&source, &manifest);
    for limit in [None, Some(1 << 40), Some(20_000), Some(8_000), Some(1)] {
        let out = config_folder(&config);
        let plan = copy(&source, &manifest, Some(Dtype::F32), limit, out.path());
        let files = plan.files.len();
        let bytes = |file: &OutPlan| file.tensors.iter().map(|t| 4 * t.len as u64).sum::<u64>();
        match limit {
            Some(1) => assert_eq!(files, values.len()),
            Some(limit) if limit < 1 << 20 => {
                assert!(files > 1 && plan.files.iter().all(|f| bytes(f) <= limit), "{limit}");
                assert!(
                    plan.files.windows(2).all(|f| bytes(&f[0]) + 4 * f[1].tensors[0].len as u64 > limit),
                    "{limit}"
                );
            }
            _ => assert_eq!(files, 1),
        }
        let mut found = BTreeMap::new();
        for file in &plan.files {
            let bytes = std::fs::read(out.path().join(&file.name)).unwrap();
            for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
                assert!(view.data() == bytemuck::cast_slice::<_, u8>(&values[name]), "{name}");
                assert!(found.insert(name.to_string(), file.name.clone()).is_none());
            }
        }
        assert_eq!(found.len(), values.len());
        let index = std::fs::read_to_string(out.path().join("model.safetensors.index.json"));
        assert_eq!(index.is_ok(), files > 1);
        if let Ok(index) = index {
            let index: Value = serde_json::from_str(&index).unwrap();
            assert_eq!(index["metadata"]["total_size"], json!(4 * manifest.elements()));
            assert_eq!(index["weight_map"], json!(found));
        }
        let again = Source::open(out.path(), &config, &manifest, 0).unwrap();
        assert_eq!(again.notices(), [""; 0]);
        assert!(read_all(&again, &manifest) == values);
    }
}

#[test]
fn bf16_is_rounded_to_nearest_even_as_the_half_crate_does() {
    let (config, manifest) = model(json!({}));
    let source = source_of(&config, &manifest, &Draft::new(&manifest, |_| Dtype::F32));
    let out = config_folder(&config);
    copy(&source, &manifest, Some(Dtype::Bf16), None, out.path());
    let again = Source::open(out.path(), &config, &manifest, 0).unwrap();
    let rounded = read_all(&again, &manifest);
    for (name, values) in read_all(&source, &manifest) {
        let expected: Vec<f32> = values.iter().map(|v| half::bf16::from_f32(*v).to_f32()).collect();
        assert_eq!(bits(&rounded[&name]), bits(&expected), "{name}");
    }
}

#[test]
fn a_weight_beyond_f16_is_refused_by_tensor_and_element() {
    let (config, manifest) = model(json!({}));
    let mut draft = Draft::new(&manifest, |_| Dtype::F32);
    let name = "model.layers.1.mlp.down_proj.weight";
    draft.get(name).bytes[4 * 900..][..4].copy_from_slice(&65_520.0_f32.to_le_bytes());
    let source = source_of(&config, &manifest, &draft);
    let out = tempfile::tempdir().unwrap();
    let plan = FilesPlan::new(&manifest, |_| Dtype::F16, None);
    let work = Copy { source: &source, manifest: &manifest, plan: &plan, dir: out.path() };
    assert_says(&refusal(async_files::block_on(work).unwrap().0), &[name, "element 900", "F16", "6.552e4"]);
}

/// Files that write at most a few bytes at a time, and fail after some bytes or at the sync.
struct Faulty {
    written: Rc<Cell<u64>>,
    fail_after: u64,
    sync_fails: bool,
}

struct FaultyFile(std::fs::File, Rc<Cell<u64>>, u64, bool);

impl Files for Faulty {
    type File = FaultyFile;

    async fn create(&self, path: &Path) -> io::Result<FaultyFile> {
        Ok(FaultyFile(StdFiles.create(path).await?, self.written.clone(), self.fail_after, self.sync_fails))
    }
}

impl OutFile for FaultyFile {
    async fn write_some(&mut self, buffer: Vec<u8>, from: usize, position: u64) -> (io::Result<usize>, Vec<u8>) {
        let count = self.1.get() + 1;
        self.1.set(count);
        if count > self.2 {
            return (Err(io::ErrorKind::StorageFull.into()), buffer);
        }
        if count.is_multiple_of(5) {
            return (Err(io::ErrorKind::Interrupted.into()), buffer);
        }
        let end = buffer.len().min(from + 1 + (count as usize * 677) % 3_000);
        let (result, _) = self.0.write_some(buffer[..end].to_vec(), from, position).await;
        (result, buffer)
    }

    async fn sync(&mut self) -> io::Result<()> {
        if self.3 { Err(io::Error::other("sync")) } else { self.0.sync().await }
    }

    async fn close(self) -> io::Result<()> {
        OutFile::close(self.0).await
    }
}

fn block_on_faulty(work: Copy<'_>, faulty: &Faulty) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work.run(faulty))
}

#[test]
fn short_and_interrupted_writes_are_resumed_and_failed_ones_reported() {
    let (config, manifest) = model(json!({}));
    let source = source_of(&config, &manifest, &Draft::new(&manifest, mixed));
    let values = read_all(&source, &manifest);
    let plan = FilesPlan::new(&manifest, |_| Dtype::F32, Some(30_000));
    let run = |fail_after, sync_fails| {
        let faulty = Faulty { written: Rc::default(), fail_after, sync_fails };
        let out = config_folder(&config);
        let work = Copy { source: &source, manifest: &manifest, plan: &plan, dir: out.path() };
        let result = block_on_faulty(work, &faulty);
        (result, out, faulty.written.get())
    };
    let (result, out, writes) = run(u64::MAX, false);
    result.unwrap();
    assert!(read_all(&Source::open(out.path(), &config, &manifest, 0).unwrap(), &manifest) == values);
    for fail_after in [0, 1, writes / 2, writes - 1] {
        match run(fail_after, false).0 {
            Err(Error::Io { doing: "writing", source, .. }) => assert_eq!(source.kind(), io::ErrorKind::StorageFull),
            other => panic!("after {fail_after} writes: {other:?}"),
        }
    }
    assert!(matches!(run(u64::MAX, true).0, Err(Error::Io { doing: "syncing", .. })));
}

#[test]
fn both_kinds_of_files_write_the_same_bytes_and_never_over_a_file() {
    let (config, manifest) = model(json!({}));
    let source = source_of(&config, &manifest, &Draft::new(&manifest, mixed));
    let plan = FilesPlan::new(&manifest, mixed_of, None);
    let outs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let work = |dir| Copy { source: &source, manifest: &manifest, plan: &plan, dir };
    async_files::block_on(work(outs[0].path())).unwrap().0.unwrap();
    async_files::block_on_std(work(outs[1].path())).unwrap().unwrap();
    let read = |out: &tempfile::TempDir| std::fs::read(out.path().join("model.safetensors")).unwrap();
    assert!(read(&outs[0]) == read(&outs[1]));
    for result in [
        async_files::block_on(work(outs[0].path())).unwrap().0,
        async_files::block_on_std(work(outs[1].path())).unwrap(),
    ] {
        assert!(matches!(result, Err(Error::Io { doing: "creating", .. })));
    }
}

fn mixed_of(tensor: &crate::model::Tensor) -> Dtype {
    mixed(&tensor.name)
}

#[test]
fn the_configuration_says_what_was_written() {
    let text = |edits: Value, weights: &[Dtype]| -> Value {
        serde_json::from_str(&carry::config_json(&model(edits).0, weights)).unwrap()
    };
    let older = text(json!({}), &[Dtype::Bf16]);
    assert_eq!((&older["torch_dtype"], older.get("dtype")), (&json!("bfloat16"), None));
    assert_eq!((&older["head_dim"], &older["tie_word_embeddings"]), (&json!(8), &json!(false)));
    let newer = json!({"torch_dtype": null, "dtype": "float32", "tie_word_embeddings": true, "unused": [1, null]});
    let newer = text(newer, &[Dtype::F16]);
    assert_eq!((&newer["dtype"], &newer["torch_dtype"]), (&json!("float16"), &json!("float16")));
    assert_eq!((&newer["tie_word_embeddings"], &newer["unused"]), (&json!(true), &json!([1, null])));
    // Absent fields that were derived are written out.
    let derived = json!({"head_dim": null, "num_attention_heads": 6});
    assert_eq!(text(derived, &[Dtype::F32])["head_dim"], json!(4));
    // Of mixed formats the one that was named, else the widest.
    let both = [Dtype::F32, Dtype::Bf16, Dtype::F16];
    assert_eq!(text(json!({"torch_dtype": "bfloat16"}), &both)["torch_dtype"], json!("bfloat16"));
    assert_eq!(text(json!({"torch_dtype": "float32"}), &both[1..])["torch_dtype"], json!("bfloat16"));
    // What is written is read as the same model.
    let (config, _) = model(json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}));
    let again = ModelConfig::parse(&carry::config_json(&config, &[Dtype::F32]), Path::new("config.json")).unwrap();
    assert_eq!(ModelConfig { json: config.json.clone(), ..again }, config);
}

#[test]
fn tokenizer_files_are_copied_and_nothing_else() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for name in ["tokenizer.json", "chat_template.jinja", "generation_config.json", "README.md", "model.safetensors"] {
        std::fs::write(from.path().join(name), name).unwrap();
    }
    let names = carry::copy_files(from.path(), to.path()).unwrap();
    assert_eq!(names, ["tokenizer.json", "chat_template.jinja", "generation_config.json"]);
    for name in &names {
        assert_eq!(&std::fs::read_to_string(to.path().join(name)).unwrap(), name);
    }
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 3);
}
