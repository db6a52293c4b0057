//! What lives in VRAM goes in and out of a store like anything else, seen without a GPU: the engine's device is RAM
//! here. Weights are imported into a placement that a plan for a GPU chose, and exported from it.

use mt_engine::{Config, DeviceBackend, DeviceConfig, DeviceId, Engine};
use mt_kernels::Cpu;
use mt_tests::case::{Case, REQUIRED};
use mt_tests::rig::Setup;
use mt_tests::tensors::Tensors;
use mt_tests::trace::job;
use mt_trainer::checkpoint::{self, ExportDtype, ExportRequest, OutFolder, Source, State};
use mt_trainer::model::Manifest;
use mt_trainer::profile::MachineProfile;
use mt_trainer::target::{Gpu, Precision, Target};

/// Bytes of VRAM: all that a case wants, and so little that some of its state stays in RAM.
const VRAM: [u64; 2] = [1 << 30, 130 << 20];

#[test]
fn weights_that_live_in_vram_are_imported_and_exported() {
    let cpu = Cpu::new(2).expect("threads start");
    for name in REQUIRED {
        let case = Case::named(name);
        let job = job(&case, Some(1.0));
        let manifest = Manifest::new(&job.config);
        for (vram, precision) in VRAM.into_iter().zip([Precision::Bf16, Precision::Fp32]) {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let target = Target::Gpu(Gpu { device: DeviceId(0), precision });
            let rates = MachineProfile::assumed(2).rates(&[], 2, Some(DeviceId(0)));
            let setup = Setup { target, vram, rates, page: Some(2_048), durable: false, ..Setup::default() };
            let prepared = job.prepare(&setup).expect("the set-up is sound");
            let residency = prepared.residency().settled();
            assert!(residency.devices[0].placed_bytes > 0, "{name}: something lives in VRAM");
            let ram = |it: DeviceConfig| DeviceConfig { backend: DeviceBackend::Memory, ..it };
            let devices = prepared.devices().into_iter().map(ram).collect();
            let config = Config { devices, ..Config::new(Vec::new(), prepared.arena_bytes) };
            let engine = Engine::create(config, &prepared.regions).expect("an engine");
            engine.place(prepared.residency(), prepared.spilled()).expect("the placement of the plan");
            let state = State {
                engine: &engine,
                manifest: &manifest,
                layout: &prepared.layout,
                residency: &residency,
                host_bytes: prepared.arena_bytes,
                has_disk: false,
            };
            let source = Source::open(&job.dir, &job.config, &manifest, 0).expect("the case's weights");
            checkpoint::import(&state, &source, &cpu, &mut |_, _| Ok(())).expect("the import");
            let out = OutFolder::create(&folder.path().join("out")).expect("a folder");
            let request =
                ExportRequest { dtype: ExportDtype::Source, max_shard_bytes: None, carry_from: job.dir.clone() };
            checkpoint::export(out, &state, &job.config, &source.record(), &request, &cpu, &mut |_, _| {})
                .expect("the export");
            engine.close().expect("nothing failed");
            let exported = Tensors::read_model(&folder.path().join("out"));
            assert!(exported.bits() == case.start.bits(), "{name} in {vram} bytes of VRAM: other weights");
        }
    }
}
