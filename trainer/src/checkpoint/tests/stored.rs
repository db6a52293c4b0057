//! Import into a store and export out of it: placements, page sizes and arenas change nothing, and a failed one leaves
//! nothing.

use super::super::dtype::Dtype;
use super::super::stream::{self, State};
use super::super::{ExportDtype, ExportReport, ExportRequest, OutFolder, Source, SourceRecord, export, import};
use super::{Draft, assert_says, bits, config_folder, model, read_all, refusal, single_folder};
use crate::error::Result;
use crate::layout::{HI, LO, Layout, M, V};
use crate::model::{Manifest, ModelConfig};
use mt_engine::plan::{Budget, Residency, Shape, plan};
use mt_engine::{Config, Engine, Mode, Profile, Resource, Schedule, record_bytes};
use mt_kernels::Cpu;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A store and what lies where in it.
struct Place {
    engine: Engine,
    layout: Layout,
    residency: Residency,
    host_bytes: u64,
    dir: Option<TempDir>,
}

impl Place {
    /// A store in a folder, nothing placed, with room for `chunks` times the two planes of a chunk.
    fn on_disk(manifest: &Manifest, page_elements: usize, chunk_elements: usize, chunks: u64) -> Place {
        let layout = Layout::new(manifest, Some(page_elements), chunk_elements);
        let dir = tempfile::tempdir().unwrap();
        let regions = layout.regions(true);
        let chunk_bytes = u64::from(layout.chunk_pages) * page_elements as u64 * 4;
        let host_bytes = record_bytes(&regions) + chunks * chunk_bytes;
        let engine = Engine::create(Config::new(vec![dir.path().into()], host_bytes), &regions).unwrap();
        Place { engine, layout, residency: Residency::default(), host_bytes, dir: Some(dir) }
    }

    /// A store in RAM alone, everything placed.
    fn in_ram(manifest: &Manifest) -> Place {
        let layout = Layout::new(manifest, Some(2_048), 4_096);
        let regions = layout.regions(true);
        let mut schedule = Schedule::default();
        for (_, chunk) in stream::chunks(manifest, &layout) {
            let accesses = [HI, LO, M, V].map(|region| schedule.access(chunk.run(region), Mode::Update, 0));
            schedule.work(Resource::HostCompute, 0, accesses.to_vec(), 0);
        }
        let shape = Shape { regions: &regions, sweeps_per_commit: 0, prefetch_intervals_max: None, has_disk: false };
        let host_bytes = regions.iter().map(|r| r.bytes()).sum::<u64>();
        let budget = Budget { host_bytes, device_bytes: Vec::new(), disk_bytes: 0 };
        let planned = plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &Residency::default());
        let residency = planned.unwrap().0.exit;
        let host_bytes = host_bytes + record_bytes(&regions);
        let engine = Engine::create(Config::new(Vec::new(), host_bytes), &regions).unwrap();
        engine.place(&residency, &[]).unwrap();
        Place { engine, layout, residency, host_bytes, dir: None }
    }

    fn state<'a>(&'a self, manifest: &'a Manifest) -> State<'a> {
        let Place { engine, layout, residency, host_bytes, dir } = self;
        State { engine, manifest, layout, residency, host_bytes: *host_bytes, has_disk: dir.is_some() }
    }

    fn import(&self, manifest: &Manifest, source: &Source) -> Result<super::super::ImportReport> {
        import(&self.state(manifest), source, &Cpu::new(2).unwrap(), &mut |_, _| Ok(()))
    }

    /// Commits, closes, and opens at the commit with chunks of another size.
    fn reopen(self, manifest: &Manifest, chunk_elements: usize) -> Place {
        self.engine.commit(b"note").unwrap();
        self.engine.close().unwrap();
        let layout = Layout::new(manifest, Some(self.layout.page_elements), chunk_elements);
        let host_bytes = self.host_bytes + (1 << 20);
        let config = Config::new(vec![self.dir.as_ref().unwrap().path().into()], host_bytes);
        Place { engine: Engine::open(config).unwrap(), layout, host_bytes, ..self }
    }
}

/// What to export, and where.
struct Asked {
    out: PathBuf,
    request: ExportRequest,
}

fn request(out: PathBuf, dtype: ExportDtype, max_shard_bytes: Option<u64>) -> Asked {
    Asked { out, request: ExportRequest { dtype, max_shard_bytes, carry_from: "none".into() } }
}

fn run_export(
    place: &Place,
    config: &ModelConfig,
    manifest: &Manifest,
    record: &SourceRecord,
    asked: &Asked,
) -> Result<ExportReport> {
    let folder = OutFolder::create(&asked.out)?;
    export(folder, &place.state(manifest), config, record, &asked.request, &Cpu::new(2).unwrap(), &mut |_, _| {})
}

/// What other readers find in the folder of an export.
fn reread(out: &Path, manifest: &Manifest) -> std::collections::BTreeMap<String, Vec<f32>> {
    let config = ModelConfig::read(&out.join("config.json")).unwrap();
    assert!(Manifest::new(&config) == *manifest);
    let source = Source::open(out, &config, manifest, 0).unwrap();
    assert_eq!(source.notices(), [""; 0]);
    read_all(&source, manifest)
}

fn mixed(name: &str) -> Dtype {
    match name {
        name if name.contains("embed") => Dtype::F16,
        name if name.contains("norm") => Dtype::F32,
        _ => Dtype::Bf16,
    }
}

/// Files directly in a folder.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_export_without_training_gives_the_source_back_whatever_the_store() {
    let (config, manifest) = model(json!({"model_type": "qwen3"}));
    let folder = single_folder(&config, &Draft::new(&manifest, mixed));
    std::fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    let source = Source::open(folder.path(), &config, &manifest, 0).unwrap();
    let (values, record) = (read_all(&source, &manifest), source.record());
    let places = [
        Place::on_disk(&manifest, 2_048, 2_048, 2),
        Place::on_disk(&manifest, 2_048, 6_000, 3),
        Place::on_disk(&manifest, 65_536, 1, 2),
        Place::in_ram(&manifest),
    ];
    let mut first: Option<Vec<u8>> = None;
    for place in places {
        let report = place.import(&manifest, &source).unwrap();
        assert_eq!((report.tensors, report.elements), (values.len(), manifest.elements()));
        let mut places = vec![place];
        if places[0].dir.is_some() {
            let again = places.remove(0).reopen(&manifest, 4_096);
            places.push(again);
        }
        let out = folder.path().join(format!("out-{}", places[0].layout.page_elements)).join("deep");
        for dtype in [ExportDtype::Source, ExportDtype::One(Dtype::F32)] {
            let mut request = request(out.join(format!("{dtype:?}")), dtype, None);
            request.request.carry_from = folder.path().into();
            let report = run_export(&places[0], &config, &manifest, &record, &request).unwrap();
            assert_eq!(report.files, ["model.safetensors", "config.json", "tokenizer.json"]);
            assert_eq!(names(&request.out), ["config.json", "model.safetensors", "tokenizer.json"]);
            assert!(reread(&request.out, &manifest) == values);
            if dtype == ExportDtype::Source {
                let bytes = std::fs::read(request.out.join("model.safetensors")).unwrap();
                assert!(*first.get_or_insert(bytes.clone()) == bytes);
            }
        }
        std::fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn moments_and_padding_are_zero_after_an_import() {
    let (config, manifest) = model(json!({}));
    let source = Source::random(Path::new("none"), &config, &manifest, 9);
    for place in [Place::on_disk(&manifest, 2_048, 4_096, 4), Place::in_ram(&manifest)] {
        place.import(&manifest, &source).unwrap();
        let state = place.state(&manifest);
        let sweep = stream::begin(&state, &[HI, LO, M, V], Mode::Read).unwrap();
        for (unit, chunk) in stream::chunks(&manifest, &place.layout) {
            let planes = [HI, LO, M, V].map(|region| sweep.host(chunk.run(region)).unwrap());
            assert!(planes[2..].iter().all(|plane| plane.iter().all(|byte| *byte == 0)));
            assert!(planes[..2].iter().all(|plane| plane[2 * chunk.len..].iter().all(|byte| *byte == 0)));
            let mut expected = vec![0.0; chunk.len];
            source.read_unit(unit, chunk.start, &mut expected, 1).unwrap();
            let (hi, lo): (&[u16], &[i16]) = (bytemuck::cast_slice(&planes[0]), bytemuck::cast_slice(&planes[1]));
            for (index, weight) in expected.iter().enumerate() {
                let rebuilt = (u32::from(hi[index]) << 16).wrapping_add(i32::from(lo[index]) as u32);
                assert_eq!(rebuilt, weight.to_bits());
            }
        }
        sweep.finish().unwrap();
    }
}

#[test]
fn progress_goes_up_to_all_bytes() {
    let (config, manifest) = model(json!({}));
    let source = Source::random(Path::new("none"), &config, &manifest, 9);
    let place = Place::on_disk(&manifest, 2_048, 2_048, 2);
    let mut seen = vec![0];
    let mut note = |done, all| {
        assert_eq!(all, 4 * manifest.elements());
        seen.push(done);
        Ok(())
    };
    import(&place.state(&manifest), &source, &Cpu::new(1).unwrap(), &mut note).unwrap();
    assert!(seen.is_sorted() && seen.len() > 5 && seen.last() == Some(&(4 * manifest.elements())));
    let out = tempfile::tempdir().unwrap();
    let mut last = (0, 0);
    let request = request(out.path().join("out"), ExportDtype::Source, None);
    let note = &mut |done, all| last = (done, all);
    let (folder, cpu) = (OutFolder::create(&request.out).unwrap(), Cpu::new(1).unwrap());
    export(folder, &place.state(&manifest), &config, &source.record(), &request.request, &cpu, note).unwrap();
    assert_eq!(last, (4 * manifest.elements(), 4 * manifest.elements()));
}

#[test]
fn bf16_rounds_the_rebuilt_weight_and_never_copies_the_high_plane() {
    let (config, manifest) = model(json!({}));
    let mut draft = Draft::new(&manifest, |_| Dtype::F32);
    // Ties: the high plane goes away from zero, an export to even.
    let ties = [0x3F80_8000_u32, 0xBF80_8000, 0x3F81_8000, 0x0000_8000, 0x7F7E_8000];
    let rounded = [0x3F80_u16, 0xBF80, 0x3F82, 0x0000, 0x7F7E];
    draft.get("lm_head.weight").bytes[..20].copy_from_slice(bytemuck::cast_slice(&ties));
    let source = Source::open(single_folder(&config, &draft).path(), &config, &manifest, 0).unwrap();
    let place = Place::in_ram(&manifest);
    place.import(&manifest, &source).unwrap();
    let out = tempfile::tempdir().unwrap();
    let request = request(out.path().join("out"), ExportDtype::One(Dtype::Bf16), Some(6_000));
    let report = run_export(&place, &config, &manifest, &source.record(), &request).unwrap();
    assert_eq!(report.bytes, 2 * manifest.elements());
    assert!(report.files.contains(&"model.safetensors.index.json".to_string()));
    let values = reread(&request.out, &manifest);
    let found: Vec<u16> = bits(&values["lm_head.weight"][..5]).iter().map(|b| (b >> 16) as u16).collect();
    assert_eq!(found, rounded);
    let text = std::fs::read_to_string(request.out.join("config.json")).unwrap();
    assert_says(&text, &["\"torch_dtype\": \"bfloat16\""]);
}

#[test]
fn an_export_that_fails_leaves_nothing_and_one_in_the_way_is_kept() {
    let (config, manifest) = model(json!({}));
    let mut draft = Draft::new(&manifest, |_| Dtype::F32);
    draft.get("lm_head.weight").bytes[400..404].copy_from_slice(&1e6_f32.to_le_bytes());
    let source = Source::open(single_folder(&config, &draft).path(), &config, &manifest, 0).unwrap();
    let place = Place::on_disk(&manifest, 2_048, 2_048, 2);
    place.import(&manifest, &source).unwrap();
    let record = source.record();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let with = |dtype| request(out.clone(), ExportDtype::One(dtype), None);
    let text = refusal(run_export(&place, &config, &manifest, &record, &with(Dtype::F16)));
    assert_says(&text, &["lm_head.weight, element 100", "F16"]);
    assert_eq!(names(dir.path()), [""; 0]);

    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("mine"), "kept").unwrap();
    let text = refusal(run_export(&place, &config, &manifest, &record, &with(Dtype::F32)));
    assert_says(&text, &[&out.display().to_string(), "empty"]);
    assert_eq!((names(dir.path()), names(&out)), (vec!["out".to_string()], vec!["mine".to_string()]));
    std::fs::remove_file(out.join("mine")).unwrap();
    run_export(&place, &config, &manifest, &record, &with(Dtype::F32)).unwrap();
    assert_eq!(names(dir.path()), ["out"]);
    assert!(reread(&out, &manifest) == read_all(&source, &manifest));

    let file = request(out.join("config.json"), ExportDtype::Source, None);
    assert_says(&refusal(run_export(&place, &config, &manifest, &record, &file)), &["a file"]);
    let mut incomplete = record.clone();
    incomplete.tensors.remove("model.norm.weight");
    let other = request(dir.path().join("other"), ExportDtype::Source, None);
    assert_says(&refusal(run_export(&place, &config, &manifest, &incomplete, &other)), &["model.norm.weight"]);
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn an_export_whose_name_was_taken_meanwhile_keeps_both() {
    let (config, manifest) = model(json!({}));
    let source = Source::random(Path::new("none"), &config, &manifest, 9);
    let place = Place::in_ram(&manifest);
    place.import(&manifest, &source).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let asked = request(dir.path().join("out"), ExportDtype::Source, None);
    let folder = OutFolder::create(&asked.out).unwrap();
    std::fs::write(&asked.out, "mine").unwrap();
    std::fs::create_dir_all(dir.path().join("out-2/theirs")).unwrap();
    let (state, cpu) = (place.state(&manifest), Cpu::new(1).unwrap());
    let result = export(folder, &state, &config, &source.record(), &asked.request, &cpu, &mut |_, _| {});
    assert_says(&refusal(result), &[&asked.out.display().to_string(), "out-3"]);
    assert_eq!(names(dir.path()), ["out", "out-2", "out-3"]);
    assert!(reread(&dir.path().join("out-3"), &manifest) == read_all(&source, &manifest));
    let little = OutFolder::create(&dir.path().join("other")).unwrap().require_free(u64::MAX).unwrap_err();
    assert_eq!((little.exit_code(), names(dir.path()).len()), (3, 3));
}

#[test]
fn a_weight_that_is_not_finite_stops_the_import_and_the_store_stays_usable() {
    let (config, manifest) = model(json!({}));
    let sound = Draft::new(&manifest, |_| Dtype::F32);
    let mut broken = sound.clone();
    let name = "model.layers.1.mlp.gate_proj.weight";
    broken.get(name).bytes[800..804].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let open = |draft| Source::open(single_folder(&config, draft).path(), &config, &manifest, 0).unwrap();
    for place in [Place::on_disk(&manifest, 2_048, 2_048, 2), Place::in_ram(&manifest)] {
        assert_says(&refusal(place.import(&manifest, &open(&broken))), &[name, "element 200", "inf"]);
        assert_eq!(place.engine.committed(), None);
        place.import(&manifest, &open(&sound)).unwrap();
        let out = config_folder(&config);
        let request = request(out.path().join("out"), ExportDtype::Source, None);
        run_export(&place, &config, &manifest, &open(&sound).record(), &request).unwrap();
        assert!(reread(&request.out, &manifest) == read_all(&open(&sound), &manifest));
    }
}

#[test]
fn an_arena_too_small_for_a_chunk_is_refused_with_bytes() {
    let (config, manifest) = model(json!({}));
    let source = Source::random(Path::new("none"), &config, &manifest, 9);
    let place = Place::on_disk(&manifest, 2_048, 6_144, 1);
    let state = State { host_bytes: place.host_bytes - 8_192, ..place.state(&manifest) };
    let result = import(&state, &source, &Cpu::new(1).unwrap(), &mut |_, _| Ok(()));
    match result {
        Err(crate::Error::DoesNotFit { need_bytes, have_bytes, .. }) => assert!(need_bytes > have_bytes),
        other => panic!("{other:?}"),
    }
}
