//! Units and offsets of a few configurations.

use super::*;
use std::path::Path;

fn config(extra: &str) -> ModelConfig {
    let text = format!(
        r#"{{"model_type": "llama", "vocab_size": 512, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 176 {extra}}}"#
    );
    ModelConfig::parse(&text, Path::new("config.json")).unwrap()
}

fn names(unit: &Unit) -> Vec<&str> {
    unit.tensors.iter().map(|t| t.name.trim_start_matches("model.layers.0.")).collect()
}

#[test]
fn tensors_lie_without_gaps_in_the_order_of_use() {
    let manifest = Manifest::new(&config(""));
    assert_eq!(manifest.units.len(), 4);
    for unit in &manifest.units {
        let mut next = 0;
        for tensor in &unit.tensors {
            assert_eq!(tensor.offset, next, "{}", tensor.name);
            assert_eq!(tensor.len, tensor.shape.iter().product::<usize>());
            assert_eq!(tensor.decay, tensor.shape.len() > 1);
            next += tensor.len;
        }
        assert_eq!(unit.elements, next);
    }
    assert_eq!(
        names(&manifest.units[1]),
        [
            "input_layernorm.weight",
            "self_attn.q_proj.weight",
            "self_attn.k_proj.weight",
            "self_attn.v_proj.weight",
            "self_attn.o_proj.weight",
            "post_attention_layernorm.weight",
            "mlp.gate_proj.weight",
            "mlp.up_proj.weight",
            "mlp.down_proj.weight"
        ]
    );
    assert_eq!(manifest.elements(), 512 * 64 * 2 + 64 + 2 * (64 * (64 + 32 + 32 + 64 + 3 * 176) + 128));
}

#[test]
fn biases_and_head_norms_follow_the_options() {
    let biased = Manifest::new(&config(r#", "attention_bias": true, "mlp_bias": true"#));
    for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
        let (unit, tensor) = biased.find(&format!("model.layers.1.self_attn.{name}.bias")).unwrap();
        assert_eq!((unit, tensor.shape.len(), tensor.decay), (2, 1, false));
    }
    assert_eq!(biased.find("model.layers.0.mlp.down_proj.bias").unwrap().1.shape, [64]);
    let mut normed = config("");
    normed.qk_norm = true;
    let normed = Manifest::new(&normed);
    assert_eq!(normed.find("model.layers.0.self_attn.k_norm.weight").unwrap().1.shape, [16]);
    assert!(normed.find("model.layers.0.self_attn.q_proj.bias").is_none());
}

#[test]
fn a_tied_head_has_no_tensor_of_its_own() {
    assert_eq!(names(Manifest::new(&config("")).units.last().unwrap()), ["model.norm.weight", "lm_head.weight"]);
    let tied = Manifest::new(&config(r#", "tie_word_embeddings": true"#));
    assert_eq!(names(tied.units.last().unwrap()), ["model.norm.weight"]);
}
