//! `mt export`.

use crate::args;
use crate::failure::Failure;
use crate::progress::bar;
use crate::resume_cmd::refuse;
use crate::say;
use crate::values;
use mt_trainer::checkpoint::{Dtype, ExportDtype};
use mt_trainer::run::size::human;
use mt_trainer::run::{Export, export};
use serde_json::json;
use std::path::Path;

/// Writes a run's last commit as a model folder.
pub fn run(args: &args::Export) -> Result<u8, Failure> {
    let dtype = match args.dtype.as_str() {
        "f32" => ExportDtype::One(Dtype::F32),
        "bf16" => ExportDtype::One(Dtype::Bf16),
        "source" => ExportDtype::Source,
        other => return Err(refuse("dtype", "f32, bf16 or source", other)),
    };
    let read = |flag, text: &str, parse: fn(&str) -> Result<u64, String>| {
        parse(text).map_err(|expected| refuse(flag, &expected, text))
    };
    let request = Export {
        out: values::here(&args.out).map_err(|expected| refuse("out", &expected, &args.out))?,
        dtype,
        max_shard_bytes: read("max-shard", &args.max_shard, values::bytes)?,
    };
    let shown = bar("exporting", args.json);
    let (step, report) = export(Path::new(&args.run), &request, &mut |done, all| {
        shown.set_length(all);
        shown.set_position(done);
    })?;
    shown.finish_and_clear();
    report.notices.iter().for_each(say::err);
    if args.json {
        let value = json!({"event": "exported", "path": request.out, "step": step, "tensors": report.tensors,
            "bytes": report.bytes, "files": report.files});
        say::out(value);
    } else {
        say::out(format_args!(
            "exported the state after step {step}: {} tensors, {}, to {}",
            report.tensors,
            human(report.bytes),
            request.out.display()
        ));
    }
    Ok(0)
}
