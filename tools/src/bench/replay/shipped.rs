//! Two lists that come with the program, and the code that made them: a training step of a model of 7 B parameters, and
//! a model of 8 B parameters whose layers stream through for inference.

use std::path::Path;

/// Names and texts.
const SHIPPED: [(&str, &str); 2] = [
    ("train-7b", include_str!("../../../schedules/train-7b.json")),
    ("stream-8b", include_str!("../../../schedules/stream-8b.json")),
];

/// A shipped list by its name.
pub fn find(name: &Path) -> Option<(&'static str, &'static str)> {
    SHIPPED.into_iter().find(|(known, _)| Path::new(known) == name)
}

/// Their names, for messages.
pub fn names() -> String {
    SHIPPED.map(|(name, _)| name).join(" and ")
}

#[cfg(test)]
mod tests {
    use super::super::list::{Access, List, Place, Row, VERSION};
    use super::*;
    use mt_engine::{Mode, Node, Run};
    use mt_trainer::model::shapes::find as shape;
    use mt_trainer::model::{Manifest, ModelConfig};
    use mt_trainer::profile::MachineProfile;
    use mt_trainer::settings::Recompute;
    use mt_trainer::step::{Options, Prepared, Shapes, prepare};
    use mt_trainer::target::Target;

    /// Bytes of a run beyond which neighbours are not joined: the file stays small.
    const JOINED_MAX: u64 = 128 << 20;

    /// What the trainer plans for a step: 4 rows of 512 tokens, on 32 cores that are assumed.
    fn step() -> Prepared {
        let config = ModelConfig::parse(&shape("7b").unwrap().config_json(), Path::new("7b")).unwrap();
        let manifest = Manifest::new(&config);
        let shapes = Shapes { rows_per_micro: 2, micro_rows: vec![2, 2], seq: 512 };
        let options = Options {
            target: Target::Cpu,
            vram_bytes: 0,
            is_rough: false,
            is_roomy: false,
            recompute: Recompute::All,
            fused_backward: false,
            durable: true,
            has_disk: true,
            page_elements: None,
            sweeps_per_commit: 1,
            threads: 32,
            rates: MachineProfile::assumed(32).rates(&[], 32, None),
            prefetch_intervals_max: None,
            budget_bytes: None,
            disk_bytes: u64::MAX,
        };
        prepare(&config, &manifest, &shapes, &options).unwrap()
    }

    /// Accesses of one piece of work, and its nanoseconds.
    type Group = (Vec<(Run, Mode)>, u64);

    fn groups(prepared: &Prepared) -> Vec<Group> {
        let mut out: Vec<Group> = Vec::new();
        let mut held = Vec::new();
        for node in &prepared.steady.schedule.nodes {
            match node {
                Node::Access(access) => held.push((access.run, access.mode)),
                Node::Work { ns, .. } => out.push((std::mem::take(&mut held), *ns)),
                Node::Commit => {}
            }
        }
        out
    }

    /// The next piece of work does the same with the pages behind.
    fn follows(prepared: &Prepared, first: &Group, next: &Group) -> bool {
        let joins = |(a, b): (&(Run, Mode), &(Run, Mode))| {
            let bytes = u64::from(prepared.regions[a.0.region.0 as usize].page_bytes);
            let joined = bytes * u64::from(a.0.count + b.0.count);
            a.0.region == b.0.region && a.1 == b.1 && a.0.end() == b.0.first && joined <= JOINED_MAX
        };
        !first.0.is_empty() && first.0.len() == next.0.len() && first.0.iter().zip(&next.0).all(joins)
    }

    fn training() -> List {
        let prepared = step();
        let mut joined: Vec<Group> = Vec::new();
        for next in groups(&prepared) {
            match joined.last_mut().filter(|last| follows(&prepared, last, &next)) {
                Some(last) => {
                    last.0.iter_mut().zip(&next.0).for_each(|(a, b)| a.0.count += b.0.count);
                    last.1 += next.1;
                }
                None => joined.push(next),
            }
        }
        let mut rows = Vec::new();
        for (accesses, ns) in joined {
            let count = accesses.len();
            for (index, (run, mode)) in accesses.into_iter().enumerate() {
                let region = &prepared.regions[run.region.0 as usize];
                let bytes = u64::from(region.page_bytes) * u64::from(run.count);
                let access = match mode {
                    Mode::Read => Access::Read,
                    Mode::Write => Access::Write,
                    Mode::Update => Access::Update,
                };
                let us = if index + 1 == count { (ns / 1_000) as f64 } else { 0.0 };
                rows.push(Row(format!("{}.{}+{}", region.name, run.first, run.count), bytes, access, us, Place::Host));
            }
        }
        List {
            version: VERSION,
            name: "a training step of Mistral 7B, updates in the forward".to_owned(),
            about:
                "MegaTrain's own schedule of a step: 4 rows of 512 tokens, two at a time, layers keep their inputs; \
                    names are region.first page+pages; neighbours are joined up to 128 MiB; times of 32 cores of 50 G \
                    operations/s each, assumed"
                    .to_owned(),
            rows,
        }
    }

    fn streaming() -> List {
        /// Bytes of a weight.
        const WEIGHT: u64 = 2;
        /// Sequences that go through a layer together, one token each.
        const SEQUENCES: f64 = 64.0;
        /// Multiplications and additions a second, of a GPU that is assumed.
        const OPERATIONS_PER_S: f64 = 100e12;
        /// Tokens that each sequence has in its cache.
        const CACHED: u64 = 2_048;
        let it = shape("8b").unwrap();
        let head_dim = it.hidden / it.heads;
        let (query, key) = (it.heads * head_dim, it.kv_heads * head_dim);
        let parts = [
            ("qkv", it.hidden * (query + 2 * key)),
            ("out", query * it.hidden),
            ("gate", it.hidden * it.mlp),
            ("up", it.hidden * it.mlp),
            ("down", it.mlp * it.hidden),
        ];
        let us = |weights: usize| (2.0 * weights as f64 * SEQUENCES / OPERATIONS_PER_S * 1e6).round();
        let weights =
            |name: String, weights: usize| Row(name, weights as u64 * WEIGHT, Access::Read, us(weights), Place::Device);
        let mut rows = Vec::new();
        for layer in 0..it.layers {
            for (part, count) in parts {
                if part == "out" {
                    let bytes = 2 * key as u64 * CACHED * SEQUENCES as u64 * WEIGHT;
                    rows.push(Row(format!("cache.{layer}"), bytes, Access::Update, 0.0, Place::Device));
                }
                rows.push(weights(format!("layer.{layer}.{part}"), count));
            }
        }
        rows.push(weights("head".to_owned(), it.vocab * it.hidden));
        List {
            version: VERSION,
            name: "a token of Llama 3.1 8B for 64 sequences, layers streamed".to_owned(),
            about:
                "every layer's bf16 weights are read once a token, and the cache of 2,048 tokens a sequence is read \
                    and extended; times of a GPU of 100 T operations/s, assumed"
                    .to_owned(),
            rows,
        }
    }

    /// `UPDATE=1` writes them anew.
    #[test]
    fn the_shipped_lists_are_what_is_planned_today() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schedules");
        for (list, name) in [(training(), "train-7b.json"), (streaming(), "stream-8b.json")] {
            let path = folder.join(name);
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(&path, list.to_json()).unwrap();
            }
            let shipped = std::fs::read_to_string(&path).unwrap();
            assert!(shipped == list.to_json(), "{} differs; UPDATE=1 rewrites it", path.display());
        }
    }

    #[test]
    fn the_shipped_lists_are_lists_and_as_large_as_their_models() {
        let total = |name: &str, filter: fn(&Row) -> bool| {
            let (name, text) = find(Path::new(name)).unwrap();
            let list = List::parse(text, name).unwrap();
            assert!(text.len() < 1 << 20, "{name} stays small");
            list.rows.iter().filter(|row| filter(row)).map(|row| row.1).sum::<u64>() as f64
        };
        // 7.25 B parameters: moments are updated once, 8 bytes; and whole pages.
        let moments = total("train-7b", |row| row.0.starts_with("m.") || row.0.starts_with("v."));
        assert!((moments / (8.0 * 7.25e9) - 1.0).abs() < 0.02, "{moments}");
        // 8.03 B parameters less the embedding, of which a row is read, 2 bytes each.
        let weights = total("stream-8b", |row| !row.0.starts_with("cache"));
        assert!((weights / (2.0 * (8.03e9 - 128_256.0 * 4_096.0)) - 1.0).abs() < 0.02, "{weights}");
        assert_eq!(find(Path::new("train-8b")), None);
        assert_eq!(streaming().to_json(), find(Path::new("stream-8b")).unwrap().1);
    }
}
