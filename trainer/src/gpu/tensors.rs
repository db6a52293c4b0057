//! Where a layer's tensors lie in the buffers of a GPU.
//!
//! Not as they lie in the unit: there a bias stands between one projection and the next. Here what one matrix product
//! computes together is together: the weights of q, k, v, and those of gate and up, and so are their biases. Chunks
//! are put here tensor by tensor, and gradients are taken back in the same way.

use crate::layout::Chunk;
use crate::model::{ModelConfig, Unit};
use mt_kernels::cuda::pieces::Piece;
use std::ops::Range;

/// Elements of which every group of tensors begins at a multiple: 256 bytes of bf16.
const LINE: usize = 128;

/// y = x w^T + bias, with w \[outputs, inputs]; one or several projections of one input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Linear {
    pub(super) weight: Range<usize>,
    pub(super) bias: Option<Range<usize>>,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

/// Element ranges in the buffers, the same for all layers of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensors {
    /// Of each tensor of the unit, in the unit's order: where it lies in the unit, and where it begins here.
    places: Vec<(Range<usize>, usize)>,
    /// Elements of a buffer.
    elements: usize,
    /// Norm before the attention \[H].
    pub(super) input_norm: Range<usize>,
    /// Queries, keys, values \[Q + 2 K, H].
    pub(super) qkv: Linear,
    /// Norms over the heads of q and of k \[D].
    pub(super) head_norms: Option<(Range<usize>, Range<usize>)>,
    /// Output of the attention \[H,Q].
    pub(super) o: Linear,
    /// Norm before the MLP \[H].
    pub(super) post_norm: Range<usize>,
    /// Gate and up \[2 F, H].
    pub(super) gate_up: Linear,
    /// \[H,F].
    pub(super) down: Linear,
}

/// Gives places to tensors, group by group.
struct Placing<'u> {
    unit: &'u Unit,
    places: Vec<Option<usize>>,
    end: usize,
}

impl Placing<'_> {
    fn find(&self, name: &str) -> Option<usize> {
        self.unit.tensors.iter().position(|t| t.name.ends_with(name))
    }

    /// The tensors of these names one after the other; None if the model has none of them.
    fn group(&mut self, names: &[String]) -> Option<Range<usize>> {
        let found: Vec<usize> = names.iter().filter_map(|name| self.find(name)).collect();
        if found.is_empty() {
            return None;
        }
        assert_eq!(found.len(), names.len(), "a layer has all of {names:?} or none");
        let start = self.end.next_multiple_of(LINE);
        self.end = start;
        for index in found {
            self.places[index] = Some(self.end);
            self.end += self.unit.tensors[index].len;
        }
        Some(start..self.end)
    }

    fn norm(&mut self, name: &str) -> Range<usize> {
        self.group(&[format!("{name}.weight")]).expect("the manifest has every norm of a layer")
    }

    fn linear(&mut self, names: &[&str], inputs: usize, outputs: usize) -> Linear {
        let named = |kind: &str| names.iter().map(|name| format!("{name}.{kind}")).collect::<Vec<_>>();
        let weight = self.group(&named("weight")).expect("the manifest has every projection of a layer");
        assert_eq!(weight.len(), inputs * outputs, "{names:?}");
        Linear { weight, bias: self.group(&named("bias")), inputs, outputs }
    }
}

impl Tensors {
    /// The tensors of a layer; `unit` is any layer's.
    pub fn new(config: &ModelConfig, unit: &Unit) -> Tensors {
        let (hidden, mlp) = (config.hidden, config.mlp);
        let (query, key) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let mut placing = Placing { unit, places: vec![None; unit.tensors.len()], end: 0 };
        let input_norm = placing.norm("input_layernorm");
        let qkv = placing.linear(&["q_proj", "k_proj", "v_proj"], hidden, query + 2 * key);
        let head_norms = config.qk_norm.then(|| (placing.norm("q_norm"), placing.norm("k_norm")));
        let o = placing.linear(&["o_proj"], query, hidden);
        let post_norm = placing.norm("post_attention_layernorm");
        let gate_up = placing.linear(&["gate_proj", "up_proj"], hidden, 2 * mlp);
        let down = placing.linear(&["down_proj"], mlp, hidden);
        let elements = placing.end;
        let places = unit.tensors.iter().zip(&placing.places).map(|(tensor, place)| {
            (tensor.offset..tensor.offset + tensor.len, place.expect("every tensor of a layer has a place"))
        });
        let places = places.collect();
        Tensors { places, elements, input_norm, qkv, head_norms, o, post_norm, gate_up, down }
    }

    /// Elements of a buffer that holds a layer.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Where the elements of a chunk of a layer's unit lie.
    pub(super) fn pieces(&self, chunk: Chunk) -> impl Iterator<Item = Piece> {
        let end = chunk.start + chunk.len;
        self.places.iter().filter_map(move |(range, place)| {
            let (first, last) = (range.start.max(chunk.start), range.end.min(end));
            (first < last).then(|| Piece {
                from: first - chunk.start,
                to: place + (first - range.start),
                len: last - first,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::model::Manifest;
    use std::path::Path;

    fn unit(extra: &str) -> (ModelConfig, Manifest) {
        let text = format!(
            r#"{{"model_type": "llama", "vocab_size": 16, "hidden_size": 12, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 300 {extra}}}"#
        );
        let mut config = ModelConfig::parse(&text, Path::new("config.json")).unwrap();
        config.qk_norm = true;
        let manifest = Manifest::new(&config);
        (config, manifest)
    }

    /// Every element of a unit, chunk by chunk, has a place of its own, and tensors keep their order of elements.
    #[test]
    fn chunks_cover_the_buffer_once() {
        for extra in ["", r#", "attention_bias": true, "mlp_bias": true"#] {
            let (config, manifest) = unit(extra);
            let tensors = Tensors::new(&config, &manifest.units[1]);
            assert_eq!(tensors, Tensors::new(&config, &manifest.units[2]));
            let layout = Layout::new(&manifest, Some(2_048), 2_048);
            let mut at = vec![None; tensors.elements()];
            for chunk in layout.chunks(&manifest, 1) {
                for piece in tensors.pieces(chunk) {
                    for i in 0..piece.len {
                        assert_eq!(at[piece.to + i].replace(chunk.start + piece.from + i), None);
                    }
                }
            }
            assert_eq!(at.iter().flatten().count(), manifest.units[1].elements);
            for tensor in &manifest.units[1].tensors {
                let first = at.iter().position(|e| *e == Some(tensor.offset)).unwrap();
                let whole = at[first..first + tensor.len].iter().copied();
                assert!(whole.eq((tensor.offset..tensor.offset + tensor.len).map(Some)), "{}", tensor.name);
            }
        }
    }

    #[test]
    fn what_one_product_computes_lies_together() {
        let (config, manifest) = unit(r#", "attention_bias": true"#);
        let tensors = Tensors::new(&config, &manifest.units[1]);
        assert_eq!(tensors.qkv.weight.len(), 32 * 12);
        assert_eq!(tensors.qkv.bias.clone().map(|b| b.len()), Some(32));
        assert_eq!((tensors.gate_up.weight.len(), tensors.gate_up.bias.clone()), (600 * 12, None));
        let starts = [&tensors.qkv, &tensors.o, &tensors.gate_up, &tensors.down].map(|l| l.weight.start % LINE);
        assert_eq!(starts, [0; 4]);
    }
}
