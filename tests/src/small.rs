//! Small models and a tokenizer, written from nothing: what the fault cases start from.
//!
//! *M0*: Llama, hidden 64, intermediate 176, 2 layers, 4 heads, 2 key/value heads, vocabulary 512, f32, untied, seeded.
//! *TOK*: byte-level BPE with 512 ids: 256 bytes, 252 merges, `<s>`, `</s>`, `<pad>`, `<unk>`.

use crate::tensors::{self, Tensors};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::{Map, Value, json};
use std::path::Path;

/// A model: settings and weights.
#[derive(Clone)]
pub struct Small {
    /// Content of `config.json`.
    pub config: Value,
    /// Weights.
    pub tensors: Tensors,
}

/// Seeded normal numbers.
pub struct Normal(ChaCha8Rng);

impl Normal {
    /// A stream of its own for each seed.
    pub fn new(seed: u64) -> Normal {
        Normal(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Uniform in (0, 1].
    pub fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }

    /// Mean 0, deviation 1.
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
    }
}

impl Small {
    /// M0.
    pub fn m0(seed: u64) -> Small {
        Small::with(seed, json!({}))
    }

    /// M0 with other settings; null takes a setting out.
    pub fn with(seed: u64, changes: Value) -> Small {
        let mut config = json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
            "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512,
            "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false, "initializer_range": 0.05,
            "bos_token_id": 508, "eos_token_id": 509, "torch_dtype": "float32",
        });
        let table = config.as_object_mut().expect("an object");
        for (key, value) in changes.as_object().expect("changes are an object") {
            if value.is_null() {
                table.remove(key).map_or((), drop)
            } else {
                table.insert(key.clone(), value.clone()).map_or((), drop)
            }
        }
        let tensors = weights(table, seed);
        Small { config, tensors }
    }

    /// Writes `config.json` and `model.safetensors` in f32.
    pub fn write(&self, dir: &Path) {
        self.write_config(dir);
        tensors::write(&dir.join("model.safetensors"), &self.tensors.entries());
    }

    /// Writes `config.json` alone.
    pub fn write_config(&self, dir: &Path) {
        std::fs::create_dir_all(dir).expect("the folder can be made");
        std::fs::write(dir.join("config.json"), format!("{:#}\n", self.config)).expect("config.json can be written");
    }
}

/// Matrices of deviation 0.08, norms around 1, biases away from 0.
fn weights(config: &Map<String, Value>, seed: u64) -> Tensors {
    let int = |key: &str| config.get(key).and_then(Value::as_u64).map(|x| x as usize);
    let flag = |key: &str| config.get(key).and_then(Value::as_bool).unwrap_or(false);
    let need = |key: &str| int(key).unwrap_or_else(|| panic!("config has {key}"));
    let (hidden, mlp, vocab) = (need("hidden_size"), need("intermediate_size"), need("vocab_size"));
    let (heads, groups) = (need("num_attention_heads"), need("num_key_value_heads"));
    let d = int("head_dim").unwrap_or(hidden / heads);
    let family = config["model_type"].as_str().expect("model_type");
    let qkv_bias = family == "qwen2" || flag("attention_bias");
    let mut normal = Normal::new(seed);
    let mut out = Tensors::default();
    let mut put = |name: &str, shape: &[usize], mean: f64, deviation: f64| {
        let values = (0..shape.iter().product()).map(|_| (mean + deviation * normal.normal()) as f32).collect();
        out.insert(name, shape, values);
    };
    put("model.embed_tokens.weight", &[vocab, hidden], 0.0, 0.2);
    for layer in 0..need("num_hidden_layers") {
        let linear: [(&str, usize, usize, bool); 7] = [
            ("self_attn.q_proj", heads * d, hidden, qkv_bias),
            ("self_attn.k_proj", groups * d, hidden, qkv_bias),
            ("self_attn.v_proj", groups * d, hidden, qkv_bias),
            ("self_attn.o_proj", hidden, heads * d, flag("attention_bias")),
            ("mlp.gate_proj", mlp, hidden, flag("mlp_bias")),
            ("mlp.up_proj", mlp, hidden, flag("mlp_bias")),
            ("mlp.down_proj", hidden, mlp, flag("mlp_bias")),
        ];
        for (name, outputs, inputs, bias) in linear {
            put(&format!("model.layers.{layer}.{name}.weight"), &[outputs, inputs], 0.0, 0.12);
            if bias {
                put(&format!("model.layers.{layer}.{name}.bias"), &[outputs], 0.1, 0.2);
            }
        }
        for name in ["input_layernorm", "post_attention_layernorm"] {
            put(&format!("model.layers.{layer}.{name}.weight"), &[hidden], 1.1, 0.2);
        }
        if family == "qwen3" {
            put(&format!("model.layers.{layer}.self_attn.q_norm.weight"), &[d], 1.1, 0.2);
            put(&format!("model.layers.{layer}.self_attn.k_norm.weight"), &[d], 0.9, 0.2);
        }
    }
    put("model.norm.weight", &[hidden], 1.0, 0.2);
    if !flag("tie_word_embeddings") {
        put("lm_head.weight", &[vocab, hidden], 0.0, 0.12);
    }
    out
}

/// The character by which byte-level BPE writes a byte.
fn byte_char(byte: u8) -> char {
    let plain = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if plain(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !plain(b)).count() as u32;
    char::from_u32(256 + before).expect("a character")
}

/// Writes TOK: `tokenizer.json` and `tokenizer_config.json`.
pub fn write_tokenizer(dir: &Path) {
    let mut vocab = Map::new();
    let mut merges = Vec::new();
    for byte in 0..=255 {
        vocab.insert(byte_char(byte).to_string(), vocab.len().into());
    }
    let letters: Vec<char> = " etaoinshrdlucmf".bytes().map(byte_char).collect();
    let pairs = letters.iter().flat_map(|a| letters[1..].iter().map(move |b| (*a, *b)));
    for (a, b) in
        pairs.chain([(letters[0], letters[0])]).chain("gypwbvkjxqz".chars().map(|c| (letters[1], c))).take(252)
    {
        vocab.insert(format!("{a}{b}"), vocab.len().into());
        merges.push(json!([a.to_string(), b.to_string()]));
    }
    let special = |(i, name): (usize, &&str)| {
        json!({"id": 508 + i, "content": name, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false,
               "special": true})
    };
    let added: Vec<Value> = ["<s>", "</s>", "<pad>", "<unk>"].iter().enumerate().map(special).collect();
    assert_eq!(vocab.len(), 508, "bytes and merges");
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocab, "merges": merges},
    });
    let settings = json!({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
                          "pad_token": "<pad>", "unk_token": "<unk>", "model_max_length": 512});
    std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).expect("tokenizer.json can be written");
    std::fs::write(dir.join("tokenizer_config.json"), settings.to_string()).expect("the settings can be written");
}

/// English-like text of about this many bytes, the same for the same seed.
pub fn text(seed: u64, bytes: usize) -> String {
    let words =
        ["the", "river", "runs", "under", "stone", "and", "cold", "light", "while", "seven", "birds", "turn", "home"];
    let mut normal = Normal::new(seed);
    let mut out = String::new();
    while out.len() < bytes {
        out.push_str(words[normal.below(words.len())]);
        out.push_str(if normal.below(9) == 0 { ".\n" } else { " " });
    }
    out
}
