//! The loss of a decoder, written out plainly in f64 from `config.json` and the tensors: the reference for what the
//! golden cases do not hold (biases everywhere, odd head sizes, mixed dtypes). Slow, without batching or tiling; it
//! shares nothing with the kernels.
//!
//! The gradient is checked without a second implementation: along any direction d, (loss(w + h d) - loss(w - h d)) / 2h
//! is the gradient's product with d.

use crate::tensors::Tensors;
use mt_trainer::batch::{Batch, MicroBatch, NO_TARGET};
use serde_json::Value;
use std::collections::BTreeMap;
use std::f64::consts::PI;

/// A model in f64.
#[derive(Clone)]
pub struct Reference {
    config: Value,
    /// Weights by name.
    pub weights: BTreeMap<String, Vec<f64>>,
}

/// Rows of equal width.
type Rows = Vec<Vec<f64>>;

fn int(config: &Value, key: &str) -> Option<usize> {
    config.get(key).and_then(Value::as_u64).map(|x| x as usize)
}

impl Reference {
    /// A model of this configuration and these weights.
    pub fn new(config: &Value, tensors: &Tensors) -> Reference {
        let widen = |n: &String| (n.clone(), tensors.values(n).iter().map(|&x| f64::from(x)).collect());
        Reference { config: config.clone(), weights: tensors.names().map(widen).collect() }
    }

    /// Loss per target over all micro-batches.
    pub fn loss(&self, batch: &Batch) -> f64 {
        let sum: f64 = batch.micro.iter().map(|m| self.loss_sum(m)).sum();
        sum / batch.target_count() as f64
    }

    /// Adds `h` times the direction to the weights; names that the direction lacks stay.
    pub fn moved(&self, direction: &[(String, Vec<f64>)], h: f64) -> Reference {
        let mut out = self.clone();
        for (name, d) in direction {
            let w = out.weights.get_mut(name).expect("the direction names weights of the model");
            w.iter_mut().zip(d).for_each(|(w, d)| *w += h * d);
        }
        out
    }

    /// The gradient's product with a direction, by central differences.
    pub fn slope(&self, batch: &Batch, direction: &[(String, Vec<f64>)], h: f64) -> f64 {
        (self.moved(direction, h).loss(batch) - self.moved(direction, -h).loss(batch)) / (2.0 * h)
    }

    fn int(&self, key: &str) -> usize {
        int(&self.config, key).unwrap_or_else(|| panic!("config.json has {key}"))
    }

    fn head_dim(&self) -> usize {
        int(&self.config, "head_dim").unwrap_or_else(|| self.int("hidden_size") / self.int("num_attention_heads"))
    }

    fn loss_sum(&self, micro: &MicroBatch) -> f64 {
        let logits = self.logits(micro);
        let score = |(row, &target): (&Vec<f64>, &u32)| {
            if target == NO_TARGET {
                return 0.0;
            }
            let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (x - top).exp()).sum();
            top + sum.ln() - row[target as usize]
        };
        logits.iter().zip(&micro.targets).map(score).sum()
    }

    /// Logits of every token, row after row.
    pub fn logits(&self, micro: &MicroBatch) -> Rows {
        let hidden = self.int("hidden_size");
        let table = &self.weights["model.embed_tokens.weight"];
        let pick = |&id: &u32| table[id as usize * hidden..][..hidden].to_vec();
        let mut x: Rows = micro.ids.iter().map(pick).collect();
        for layer in 0..self.int("num_hidden_layers") {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            let attended = self.attention(&name("self_attn"), &self.norm(&name("input_layernorm"), &x), micro);
            add(&mut x, &attended);
            let normed = self.norm(&name("post_attention_layernorm"), &x);
            let (gate, up) = (self.linear(&name("mlp.gate_proj"), &normed), self.linear(&name("mlp.up_proj"), &normed));
            let silu =
                |(g, u): (&Vec<f64>, &Vec<f64>)| g.iter().zip(u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            let inner: Rows = gate.iter().zip(&up).map(silu).collect();
            add(&mut x, &self.linear(&name("mlp.down_proj"), &inner));
        }
        let x = self.norm("model.norm", &x);
        let tied = self.config["tie_word_embeddings"].as_bool().unwrap_or(false);
        self.linear(if tied { "model.embed_tokens" } else { "lm_head" }, &x)
    }

    fn linear(&self, name: &str, x: &Rows) -> Rows {
        let (w, bias) = (&self.weights[&format!("{name}.weight")], self.weights.get(&format!("{name}.bias")));
        let inputs = x[0].len();
        let dot = |row: &Vec<f64>, o: usize| row.iter().zip(&w[o * inputs..]).map(|(a, b)| a * b).sum::<f64>();
        let out = |row: &Vec<f64>| (0..w.len() / inputs).map(|o| dot(row, o) + bias.map_or(0.0, |b| b[o])).collect();
        x.iter().map(out).collect()
    }

    fn norm(&self, name: &str, x: &Rows) -> Rows {
        let weight = &self.weights[&format!("{name}.weight")];
        let eps = self.config["rms_norm_eps"].as_f64().expect("rms_norm_eps");
        x.iter().map(|row| rms_norm(row, weight, eps)).collect()
    }

    fn attention(&self, name: &str, x: &Rows, micro: &MicroBatch) -> Rows {
        let (heads, groups, d) = (self.int("num_attention_heads"), self.int("num_key_value_heads"), self.head_dim());
        let window = self.config["sliding_window"].as_u64().filter(|_| self.config["model_type"] == "mistral");
        let part = |p: &str| self.linear(&format!("{name}.{p}_proj"), x);
        let (mut q, mut k, v) = (part("q"), part("k"), part("v"));
        for (rows, norm) in [(&mut q, "q_norm"), (&mut k, "k_norm")] {
            self.turn(rows, &format!("{name}.{norm}.weight"), d, micro);
        }
        let mut out: Rows = vec![vec![0.0; heads * d]; x.len()];
        for (t, out) in out.iter_mut().enumerate() {
            let row = t / micro.seq * micro.seq;
            let first = row + micro.document[t] as usize;
            let first = window.map_or(first, |w| first.max((t + 1).saturating_sub(w as usize).max(row)));
            for head in 0..heads {
                let group = head / (heads / groups) * d;
                let query = &q[t][head * d..][..d];
                let score =
                    |s: usize| query.iter().zip(&k[s][group..]).map(|(a, b)| a * b).sum::<f64>() / (d as f64).sqrt();
                let scores: Vec<f64> = (first..=t).map(score).collect();
                let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
                for (s, score) in scores.iter().enumerate() {
                    let share = (score - top).exp() / total;
                    for i in 0..d {
                        out[head * d + i] += share * v[first + s][group + i];
                    }
                }
            }
        }
        self.linear(&format!("{name}.o_proj"), &out)
    }

    /// Normalizes (where the model does) and rotates each head of q or k.
    fn turn(&self, rows: &mut Rows, norm: &str, d: usize, micro: &MicroBatch) {
        let eps = self.config["rms_norm_eps"].as_f64().expect("rms_norm_eps");
        let frequencies = self.frequencies(d);
        for (row, &position) in rows.iter_mut().zip(&micro.positions) {
            for head in row.chunks_mut(d) {
                if let Some(weight) = self.weights.get(norm) {
                    head.copy_from_slice(&rms_norm(head, weight, eps));
                }
                for (i, f) in frequencies.iter().enumerate() {
                    let (sin, cos) = (f64::from(position) * f).sin_cos();
                    let (a, b) = (head[i], head[i + d / 2]);
                    (head[i], head[i + d / 2]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
        }
    }

    fn frequencies(&self, d: usize) -> Vec<f64> {
        let c = &self.config;
        let new = c.get("rope_parameters").filter(|p| !p.is_null());
        let theta = new.map_or(&c["rope_theta"], |p| &p["rope_theta"]).as_f64().unwrap_or(10_000.0);
        let scaling = new.or_else(|| c.get("rope_scaling").filter(|p| !p.is_null()));
        let kind =
            scaling.map_or("default", |s| s.get("rope_type").or(s.get("type")).and_then(Value::as_str).expect("type"));
        let plain = |i: usize| theta.powf(-2.0 * i as f64 / d as f64);
        if kind == "default" {
            return (0..d / 2).map(plain).collect();
        }
        assert_eq!(kind, "llama3", "the reference knows the scalings that are supported");
        let value = |key: &str| scaling.expect("llama3 has values")[key].as_f64().expect("a number");
        let (factor, low, high) = (value("factor"), value("low_freq_factor"), value("high_freq_factor"));
        let length = value("original_max_position_embeddings");
        let scale = |f: f64| {
            let turns = length * f / (2.0 * PI);
            let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            smooth * f + (1.0 - smooth) * f / factor
        };
        (0..d / 2).map(|i| scale(plain(i))).collect()
    }
}

fn add(x: &mut Rows, y: &Rows) {
    for (x, y) in x.iter_mut().zip(y) {
        x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
    }
}

fn rms_norm(row: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    let scale = 1.0 / (mean + eps).sqrt();
    row.iter().zip(weight).map(|(x, w)| x * scale * w).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Case, REQUIRED};

    /// The reference itself is checked against numbers from an independent implementation.
    #[test]
    fn the_reference_gives_the_golden_losses() {
        for name in REQUIRED {
            let case = Case::named(name);
            for file in ["config.json", "config.legacy.json"] {
                let text = std::fs::read_to_string(case.dir.join(file)).expect("the file is there");
                let config: Value = serde_json::from_str(&text).expect("JSON");
                let loss = Reference::new(&config, &case.start).loss(&case.batch());
                let error = (loss / case.steps()[0].loss - 1.0).abs();
                assert!(error < 1e-9, "{name} {file}: {loss} is off by {error:e}");
            }
        }
    }
}
