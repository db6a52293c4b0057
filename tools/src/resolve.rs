//! From texts to a run's settings: every value read and checked, each refusal naming where the value stands.

use crate::failure::Failure;
use crate::layers::{Layers, Origin};
use crate::options::SYNTHETIC;
use crate::{profiles, values};
use mt_trainer::Error;
use mt_trainer::model::shapes::{self, SHAPES};
use mt_trainer::run::Traced;
use mt_trainer::settings::{Auto, BATCH_MAX, Device, Durability, SEQ_LEN_MAX, STEPS_MAX, Settings};
use mt_trainer::target::Precision;
use std::path::PathBuf;

/// What `mt train` was asked to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Resolved {
    /// Settings of the run.
    pub settings: Settings,
    /// Nothing says what computes: a GPU may be chosen.
    pub is_device_open: bool,
    /// Folder of the run, if it was named.
    pub run: Option<PathBuf>,
    /// Step after which to stop.
    pub stop_at: Option<u64>,
    /// Folder for the trained model.
    pub export: Option<PathBuf>,
    /// What the plan is made with.
    pub profile: profiles::Choice,
    /// Steps to trace.
    pub trace: Option<Traced>,
    /// Bytes that each drive may write in its life, if that was said.
    pub drive_life_bytes: Option<u64>,
}

/// What the values are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To train: everything must be there.
    Train,
    /// To plan: data may be missing, and what becomes of the trained model is left open.
    Plan,
}

/// Reads and checks every value.
///
/// # Errors
/// A value that is not of its option's type or out of range, or options that exclude each other.
pub fn resolve(layers: &Layers, purpose: Purpose) -> Result<Resolved, Failure> {
    let take = Take { layers };
    let life = take.maybe("tbw", values::life)?.map(|bytes| bytes as u64);
    let (device, precision, is_device_open) = target(&take)?;
    let (data, synthetic) = data(&take)?;
    let settings = Settings {
        model: take.path("model")?,
        shape: take.maybe("shape", shape)?,
        data,
        synthetic,
        store: take.paths("store")?,
        direct_io: take.need("direct-io", values::named)?,
        io: take.need("io", values::named)?,
        device,
        precision,
        vram: take.need("vram", values::auto(values::bytes))?,
        ram: take.need("ram", values::auto(values::bytes))?,
        steps: take.maybe("steps", values::count(0, STEPS_MAX))?,
        epochs: take.maybe("epochs", values::count(1, STEPS_MAX))?,
        batch: take.need("batch", values::count(1, BATCH_MAX))?,
        micro_batch: take.need("micro-batch", values::auto(values::count(1, BATCH_MAX)))?,
        seq_len: take.need("seq-len", values::count(2, SEQ_LEN_MAX))?,
        lr: take.need("lr", values::number(0.0, f64::MAX))?,
        lr_schedule: take.need("lr-schedule", values::lr_schedule)?,
        warmup: take
            .need("warmup", |text| text.parse().map_err(|_| "steps (20) or a percentage of the run (5%)".into()))?,
        min_lr_ratio: take.need("min-lr-ratio", values::number(0.0, 1.0))?,
        max_grad_norm: max_grad_norm(&take)?,
        weight_decay: take.need("weight-decay", values::number(0.0, f64::MAX))?,
        betas: take.need("betas", values::betas)?,
        eps: take.need("eps", values::positive)?,
        seed: take.need("seed", values::count(0, u64::MAX))?,
        threads: threads(&take)?,
        shuffle: !layers.is_on("no-shuffle"),
        recompute: take.need("recompute", values::recompute)?,
        checkpoint_every: take.need("checkpoint-every", values::auto(values::count(1, STEPS_MAX)))?,
        durability: take.need("durability", values::durability)?,
        no_nan_guard: layers.is_on("no-nan-guard"),
        page: take.need("page", values::auto(values::page))?,
        disk: take.need("disk", values::auto(values::bytes))?,
        max_writes: max_writes(&take, life)?,
    };
    let steps = take.need("trace-steps", values::steps)?;
    let resolved = Resolved {
        settings,
        is_device_open,
        run: take.maybe("run", values::here)?,
        stop_at: take.maybe("stop-at", values::count(0, STEPS_MAX))?,
        export: take.maybe("export", values::here)?,
        profile: take.need("profile", profiles::Choice::parse)?,
        trace: take.maybe("trace", values::here)?.map(|file| Traced { file, steps }),
        drive_life_bytes: life,
    };
    check_together(&take, &resolved, purpose)?;
    Ok(resolved)
}

/// The rules that concern several options.
fn check_together(take: &Take<'_>, resolved: &Resolved, purpose: Purpose) -> Result<(), Failure> {
    let settings = &resolved.settings;
    if settings.model.is_some() && settings.shape.is_some() {
        let found = take.layers.text("shape").unwrap_or_default();
        return Err(take.refuse("shape", "no shape beside --model", found, None));
    }
    let has_model = settings.model.is_some() || settings.shape.is_some();
    if purpose == Purpose::Train && has_model && settings.data.is_empty() && !settings.synthetic {
        let hint = "a model needs text to train on: add --data FILE, or --data synthetic to measure its speed";
        return Err(take.refuse("data", "at least one file with --model or --shape", "none", Some(hint)));
    }
    if let Auto::Value(rows) = settings.micro_batch
        && rows > settings.batch
    {
        let expected = format!("at most the batch, {}", settings.batch);
        return Err(take.refuse("micro-batch", &expected, &rows.to_string(), None));
    }
    if settings.no_nan_guard && settings.max_grad_norm.is_some() {
        let hint = "clipping needs the whole norm before the first update, so none runs in backward: \
                    add --max-grad-norm off, or leave --no-nan-guard out";
        return Err(take.refuse("no-nan-guard", "--max-grad-norm off beside it", "clipping", Some(hint)));
    }
    if settings.no_nan_guard && settings.durability == Durability::Full {
        let hint = "with commits updates may run in backward anyway, since the last commit stands: leave it out";
        return Err(take.refuse("no-nan-guard", "--durability none beside it", "full", Some(hint)));
    }
    if resolved.trace.is_none() && take.layers.is_said("trace-steps") {
        let found = take.layers.text("trace-steps").unwrap_or_default();
        return Err(take.refuse(
            "trace-steps",
            "--trace FILE beside it",
            found,
            Some("add --trace FILE, or leave it out"),
        ));
    }
    if purpose == Purpose::Plan {
        return Ok(());
    }
    let discard = take.layers.is_on("discard");
    if settings.durability == Durability::None && resolved.export.is_none() && !discard {
        let hint = "nothing of the run is kept: add --export DIR for the trained model, or --discard";
        return Err(take.refuse("durability", "--export DIR or --discard with none", "neither", Some(hint)));
    }
    if discard && (settings.durability == Durability::Full || resolved.export.is_some()) {
        let hint = "leave --discard out";
        return Err(take.refuse("discard", "--durability none without --export", "another combination", Some(hint)));
    }
    Ok(())
}

/// What computes, and in what: a GPU if it is named, or if something is said that only a GPU has. And whether that is
/// left open: then it is the processor until a GPU is found that is faster.
fn target(take: &Take<'_>) -> Result<(Device, Precision, bool), Failure> {
    let device = take.need("device", values::auto(values::named::<Device>))?.value();
    let precision = take.need("precision", values::auto(values::named::<Precision>))?.value();
    let vram = take.need("vram", values::auto(values::bytes))?.value();
    let wants_gpu = vram.is_some() || precision.is_some_and(|precision| precision != Precision::Fp32);
    let is_open = device.is_none() && !wants_gpu && precision.is_none();
    let device = device.unwrap_or(if wants_gpu { Device::Cuda(0) } else { Device::Cpu });
    match (device, vram, precision) {
        (Device::Cuda(_), _, precision) => Ok((device, precision.unwrap_or(Precision::Bf16), false)),
        (Device::Cpu, None, None | Some(Precision::Fp32)) => Ok((device, Precision::Fp32, is_open)),
        (Device::Cpu, Some(_), _) => {
            let found = take.layers.text("vram").unwrap_or_default();
            Err(take.refuse("vram", "no VRAM with --device cpu", found, Some("add --device cuda")))
        }
        (Device::Cpu, None, Some(precision)) => {
            Err(take.refuse("precision", "fp32 with --device cpu", precision.name(), Some("add --device cuda")))
        }
    }
}

/// Files, or that random ids are wanted in their place.
fn data(take: &Take<'_>) -> Result<(Vec<PathBuf>, bool), Failure> {
    let texts = take.layers.texts("data");
    match texts.iter().any(|text| text == SYNTHETIC) {
        false => Ok((take.paths("data")?, false)),
        true if texts.len() == 1 => Ok((Vec::new(), true)),
        true => {
            let hint = "a file of that name is ./synthetic";
            Err(take.refuse("data", "files, or synthetic alone", &texts.join(", "), Some(hint)))
        }
    }
}

/// The name of a shape that is known.
fn shape(text: &str) -> Result<String, String> {
    let names = || SHAPES.iter().map(|shape| shape.name).collect::<Vec<_>>().join(", ");
    let expected = || format!("one of {}; mt plan --list-shapes prints their dimensions", names());
    shapes::find(text).map(|shape| shape.name.to_owned()).ok_or_else(expected)
}

fn max_grad_norm(take: &Take<'_>) -> Result<Option<f64>, Failure> {
    let text = take.layers.text("max-grad-norm").unwrap_or("off");
    match text.parse::<f64>() {
        _ if text == "off" => Ok(None),
        Ok(0.0) => {
            Err(take.refuse("max-grad-norm", "a positive number or off", text, Some("use off: --max-grad-norm off")))
        }
        Ok(norm) if norm.is_finite() && norm > 0.0 => Ok(Some(norm)),
        _ => Err(take.refuse("max-grad-norm", "a positive number or off", text, None)),
    }
}

/// A size, or a percentage of what all drives together may write in their lives.
fn max_writes(take: &Take<'_>, life: Option<u64>) -> Result<Option<u64>, Failure> {
    let Some(text) = take.layers.text("max-writes") else { return Ok(None) };
    let Some(percent) = text.strip_suffix('%') else { return take.maybe("max-writes", values::bytes) };
    let expected = "a size such as 20TB, or a percentage from 0 to 100";
    match (percent.trim().parse::<f64>(), life) {
        (Ok(percent), Some(life)) if (0.0..=100.0).contains(&percent) => {
            let drives = take.layers.texts("store").len().max(1) as f64;
            Ok(Some((percent / 100.0 * life as f64 * drives) as u64))
        }
        (Ok(_), None) => {
            let hint = Some("add --tbw TB, the drive's rating");
            Err(take.refuse("max-writes", "a size, or --tbw for a percentage", text, hint))
        }
        _ => Err(take.refuse("max-writes", expected, text, None)),
    }
}

fn threads(take: &Take<'_>) -> Result<u64, Failure> {
    Ok(match take.need("threads", values::auto(values::threads))? {
        Auto::Value(threads) => threads,
        Auto::Auto => values::all_threads(),
    })
}

/// Reads options out of the layers; knows how to refuse one.
struct Take<'a> {
    layers: &'a Layers,
}

impl Take<'_> {
    fn refuse(&self, name: &str, expected: &str, found: &str, hint: Option<&str>) -> Failure {
        let origin = self.layers.get(name).map(|given| &given.origin);
        let (place, field) = match origin {
            Some(origin @ Origin::File { .. }) => (origin.to_string(), name.to_owned()),
            Some(Origin::Flag | Origin::Default) | None => ("command line".to_owned(), format!("--{name}")),
        };
        Error::Input {
            place,
            field,
            expected: expected.to_owned(),
            found: found.to_owned(),
            hint: hint.map(str::to_owned),
        }
        .into()
    }

    fn maybe<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, Failure> {
        let Some(text) = self.layers.text(name) else { return Ok(None) };
        parse(text).map(Some).map_err(|expected| self.refuse(name, &expected, &format!("\"{text}\""), None))
    }

    fn need<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Failure> {
        self.maybe(name, parse)?.ok_or_else(|| self.refuse(name, "a value", "none", None))
    }

    fn path(&self, name: &str) -> Result<Option<PathBuf>, Failure> {
        self.maybe(name, values::path)
    }

    fn paths(&self, name: &str) -> Result<Vec<PathBuf>, Failure> {
        let texts = self.layers.texts(name).iter();
        texts
            .map(|text| {
                values::path(text).map_err(|expected| self.refuse(name, &expected, &format!("\"{text}\""), None))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    fn resolved(flags: &str) -> Result<Resolved, Failure> {
        let words = ["mt", "train"].into_iter().chain(flags.split_whitespace());
        let matches = Cli::command().try_get_matches_from(words).unwrap();
        resolve(&Layers::merge(matches.subcommand_matches("train").unwrap(), None).unwrap(), Purpose::Train)
    }

    #[test]
    fn defaults_are_those_of_the_built_in_run() {
        let settings = resolved("--threads 4").unwrap().settings;
        assert_eq!((settings.ram, settings.steps, settings.epochs), (Auto::Value(64 << 20), Some(60), None));
        assert_eq!((settings.batch, settings.seq_len, settings.checkpoint_every), (4, 128, Auto::Value(60)));
        assert_eq!((settings.max_grad_norm, settings.shuffle), (Some(1.0), true));
        let ram = |flags| resolved(flags).unwrap().settings.ram;
        assert_eq!(
            (ram("--threads 16"), ram("--threads 16 --ram 1GiB")),
            (Auto::Value(124 << 20), Auto::Value(1 << 30))
        );
    }

    #[test]
    fn refusals_name_the_flag_and_what_works() {
        for (flags, part) in [
            ("--max-grad-norm 0", "use off"),
            ("--max-grad-norm=-1", "positive"),
            ("--model m", "--data"),
            ("--durability none", "--export DIR"),
            ("--discard", "--discard"),
            ("--no-nan-guard --durability none --discard", "--max-grad-norm off"),
            ("--no-nan-guard --max-grad-norm off", "the last commit stands"),
            ("--batch 0", "--batch"),
            ("--batch 2 --micro-batch 3", "at most the batch, 2"),
            ("--betas 0.9", "--betas"),
            ("--betas 0.9,1", "--betas"),
            ("--ram 1.5XB", "--ram"),
            ("--ram 0", "--ram"),
            ("--page 3000", "power of two"),
            ("--lr NaN", "--lr"),
            ("--lr-schedule step", "cosine"),
            ("--warmup 200%", "--warmup"),
            ("--seq-len 1", "--seq-len"),
            ("--threads 0", "--threads"),
            ("--direct-io no", "preferred or required"),
            ("--io libaio", "auto, uring or pool"),
            ("--batch -1", "from 1 to"),
            ("--lr -0.001", "--lr"),
            ("--batch 99999999999", "--batch"),
            ("--batch 18446744073709551615 --micro-batch 18446744073709551615", "--batch"),
            ("--epochs 18446744073709551615", "--epochs"),
            ("--steps 18446744073709551615", "--steps"),
            ("--seq-len 18446744073709551615", "--seq-len"),
            ("--eps 1e-50", "--eps"),
            ("--ram 64G", "64GiB"),
            ("--ram 1.5gi", "1.5GiB"),
            ("--max-writes 5%", "--tbw"),
            ("--max-writes 500% --tbw 100", "0 to 100"),
            ("--max-writes many", "--max-writes"),
            ("--tbw 0", "--tbw: expected TB written, from 0.001 to 1000000, such as 600, found \"0\""),
            ("--tbw 600TB", "found \"600TB\""),
            ("--trace-steps 0", "--trace-steps"),
            ("--trace-steps 4", "--trace-steps: expected --trace FILE beside it, found 4; add --trace FILE"),
            ("--trace-steps 5-3", "3-5"),
            ("--device gpu", "cuda:N"),
            ("--vram much", "--vram"),
            ("--precision fp16", "bf16, tf32 or fp32"),
            ("--device cpu --vram 22GiB", "--device cuda"),
            ("--device cpu --precision bf16", "--device cuda"),
        ] {
            let failure = resolved(flags).unwrap_err();
            assert_eq!(failure.code, 2, "{flags}");
            assert!(failure.text.contains(part), "{flags}: {}", failure.text);
        }
    }

    #[test]
    fn a_gpu_is_planned_for_where_it_is_named_or_something_that_only_it_has() {
        let target = |flags: &str| {
            let words = ["mt", "plan"].into_iter().chain(flags.split_whitespace());
            let matches = Cli::command().try_get_matches_from(words).unwrap();
            let layers = Layers::merge(matches.subcommand_matches("plan").unwrap(), None).unwrap();
            let Settings { device, precision, vram, .. } = resolve(&layers, Purpose::Plan).unwrap().settings;
            (device, precision, vram.value())
        };
        assert_eq!(target(""), (Device::Cpu, Precision::Fp32, None));
        assert_eq!(target("--precision fp32"), (Device::Cpu, Precision::Fp32, None));
        assert_eq!(target("--device cuda"), (Device::Cuda(0), Precision::Bf16, None));
        assert_eq!(target("--vram 22GiB"), (Device::Cuda(0), Precision::Bf16, Some(22 << 30)));
        assert_eq!(target("--precision tf32"), (Device::Cuda(0), Precision::Tf32, None));
        assert_eq!(target("--device cuda:1 --precision fp32"), (Device::Cuda(1), Precision::Fp32, None));
    }

    #[test]
    fn values_are_read() {
        let flags = "--data a.txt --ram auto --max-grad-norm off --warmup 7 --no-shuffle --betas 0.8,0.9 --page 2048 \
                     --durability none --discard --lr 1e30 --steps 0";
        let settings = resolved(flags).unwrap().settings;
        assert!(settings.data[0].is_absolute());
        assert_eq!((settings.ram, settings.max_grad_norm, settings.shuffle), (Auto::Auto, None, false));
        let words = "--durability none --discard --max-grad-norm off --no-nan-guard";
        assert!(resolved(words).unwrap().settings.no_nan_guard && !settings.no_nan_guard);
        let writes = |flags| resolved(flags).unwrap().settings.max_writes;
        assert_eq!((writes("--max-writes 20TB"), writes("")), (Some(20_000_000_000_000), None));
        assert_eq!(writes("--max-writes 5% --tbw 600 --store a --store b"), Some(60_000_000_000_000));
        assert_eq!((settings.betas, settings.page, settings.steps), ((0.8, 0.9), Auto::Value(2048), Some(0)));
    }
}
