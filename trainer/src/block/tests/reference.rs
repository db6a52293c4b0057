//! A decoder layer in f64, written as plainly as possible: whole score matrix, no tiles, no backward.

use crate::model::{ModelConfig, Unit};
use mt_kernels::rope::Scaling;

/// A layer and its weights.
pub(super) struct Reference<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) unit: &'a Unit,
    pub(super) rows: usize,
    pub(super) seq: usize,
    pub(super) positions: &'a [u32],
    pub(super) document: &'a [u32],
    pub(super) window: Option<usize>,
}

impl Reference<'_> {
    fn tensor<'w>(&self, weights: &'w [f64], name: &str) -> Option<&'w [f64]> {
        let tensor = self.unit.tensors.iter().find(|t| t.name.ends_with(name))?;
        Some(&weights[tensor.offset..tensor.offset + tensor.len])
    }

    fn linear(&self, weights: &[f64], name: &str, x: &[f64], inputs: usize) -> Vec<f64> {
        let w = self.tensor(weights, &format!("{name}.weight")).unwrap();
        let bias = self.tensor(weights, &format!("{name}.bias"));
        let outputs = w.len() / inputs;
        let mut y = Vec::new();
        for x in x.chunks(inputs) {
            for o in 0..outputs {
                let dot: f64 = x.iter().zip(&w[o * inputs..]).map(|(a, b)| a * b).sum();
                y.push(dot + bias.map_or(0.0, |b| b[o]));
            }
        }
        y
    }

    fn norm(&self, w: &[f64], x: &[f64]) -> Vec<f64> {
        x.chunks(w.len())
            .flat_map(|x| {
                let mean = x.iter().map(|a| a * a).sum::<f64>() / x.len() as f64;
                let rstd = 1.0 / (mean + self.config.norm_eps).sqrt();
                x.iter().zip(w).map(move |(a, b)| a * rstd * b).collect::<Vec<_>>()
            })
            .collect()
    }

    fn rotate(&self, x: &mut [f64], heads: usize) {
        let dim = self.config.head_dim;
        assert_eq!(self.config.rope_scaling, Scaling::Default);
        for (head, x) in x.chunks_mut(dim).enumerate() {
            let position = f64::from(self.positions[head / heads]);
            for i in 0..dim / 2 {
                let angle = position * self.config.rope_theta.powf(-2.0 * i as f64 / dim as f64);
                let (sin, cos) = angle.sin_cos();
                let (a, b) = (x[i], x[i + dim / 2]);
                (x[i], x[i + dim / 2]) = (a * cos - b * sin, b * cos + a * sin);
            }
        }
    }

    fn attend(&self, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
        let (n, g, d) = (self.config.heads, self.config.kv_heads, self.config.head_dim);
        let mut out = vec![0.0; q.len()];
        for t in 0..self.rows * self.seq {
            let (row, own) = (t / self.seq, t % self.seq);
            let edge = self.window.map_or(0, |w| (own + 1).saturating_sub(w));
            let first = edge.max(self.document[t] as usize);
            for head in 0..n {
                let at = |s: usize| ((row * self.seq + s) * g + head * g / n) * d;
                let q = &q[(t * n + head) * d..][..d];
                let score = |s: usize| q.iter().zip(&k[at(s)..]).map(|(a, b)| a * b).sum::<f64>() / (d as f64).sqrt();
                let weights: Vec<f64> = (first..=own).map(|s| score(s).exp()).collect();
                let total: f64 = weights.iter().sum();
                for (s, weight) in (first..=own).zip(weights) {
                    for i in 0..d {
                        out[(t * n + head) * d + i] += weight / total * v[at(s) + i];
                    }
                }
            }
        }
        out
    }

    /// y = layer(x).
    pub(super) fn forward(&self, weights: &[f64], x: &[f64]) -> Vec<f64> {
        let (hidden, mlp) = (self.config.hidden, self.config.mlp);
        let norm = |name: &str, x: &[f64]| self.norm(self.tensor(weights, name).unwrap(), x);
        let h = norm("input_layernorm.weight", x);
        let mut q = self.linear(weights, "q_proj", &h, hidden);
        let mut k = self.linear(weights, "k_proj", &h, hidden);
        let v = self.linear(weights, "v_proj", &h, hidden);
        if self.config.qk_norm {
            q = norm("q_norm.weight", &q);
            k = norm("k_norm.weight", &k);
        }
        self.rotate(&mut q, self.config.heads);
        self.rotate(&mut k, self.config.kv_heads);
        let attended = self.attend(&q, &k, &v);
        let o = self.linear(weights, "o_proj", &attended, self.config.heads * self.config.head_dim);
        let middle: Vec<f64> = o.iter().zip(x).map(|(a, b)| a + b).collect();
        let h = norm("post_attention_layernorm.weight", &middle);
        let gate = self.linear(weights, "gate_proj", &h, hidden);
        let up = self.linear(weights, "up_proj", &h, hidden);
        let product: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
        let down = self.linear(weights, "down_proj", &product, mlp);
        down.iter().zip(&middle).map(|(a, b)| a + b).collect()
    }
}
