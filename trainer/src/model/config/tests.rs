//! Parsing: both key layouts, the families' defaults, and refusals with their unbroken twins.

use super::*;

const BASE: &str = r#"{"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 176, "rms_norm_eps": 1e-5}"#;

/// The base configuration with fields replaced; a field set to the text `-` is removed.
fn edited(edits: &[(&str, Value)]) -> Result<ModelConfig> {
    let mut map: Map<String, Value> = serde_json::from_str(BASE).unwrap();
    for (name, value) in edits {
        match value {
            Value::String(s) if s == "-" => drop(map.remove(*name)),
            value => drop(map.insert((*name).to_owned(), value.clone())),
        }
    }
    ModelConfig::parse(&Value::Object(map).to_string(), Path::new("M0/config.json"))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The refusal's field, expectation and finding.
fn refusal(edits: &[(&str, Value)]) -> (String, String, String) {
    match edited(edits) {
        Err(Error::Input { place, field, expected, found, .. }) => {
            assert_eq!(place, "M0/config.json");
            (field, expected, found)
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn the_base_has_the_defaults() {
    let config = edited(&[]).unwrap();
    assert_eq!((config.family, config.heads, config.kv_heads, config.head_dim), (Family::Llama, 4, 2, 16));
    assert_eq!((config.rope_theta, config.rope_scaling), (10_000.0, Scaling::Default));
    assert_eq!(config.windows, [None; 3]);
    assert!(!config.tied && !config.qkv_bias && !config.o_bias && !config.mlp_bias && !config.qk_norm);
    assert_eq!((config.norm_eps, config.initializer_range, config.eos.len()), (1e-5, 0.02, 0));
    assert_eq!(Value::Object(config.json), json(BASE));
}

#[test]
fn head_dim_is_read_not_derived() {
    assert_eq!(edited(&[("head_dim", json("32"))]).unwrap().head_dim, 32);
    assert_eq!(edited(&[("head_dim", Value::Null)]).unwrap().head_dim, 16);
    assert_eq!(edited(&[("num_key_value_heads", json("\"-\""))]).unwrap().kv_heads, 4);
    let qwen3 = [("model_type", json("\"qwen3\""))];
    assert_eq!(edited(&qwen3).unwrap().head_dim, 128);
    assert_eq!(edited(&[qwen3[0].clone(), ("head_dim", Value::Null)]).unwrap().head_dim, 16);

    assert_eq!(refusal(&[("num_key_value_heads", json("3"))]).0, "num_key_value_heads");
    for bad in ["30", "260", "0", "\"16\"", "16.5", "-16"] {
        assert_eq!(refusal(&[("head_dim", json(bad))]).0, "head_dim", "{bad}");
    }
    assert_eq!(refusal(&[("num_attention_heads", json("6"))]).0, "num_attention_heads");
}

#[test]
fn biases_and_head_norms_follow_the_family() {
    let all = edited(&[("attention_bias", json("true")), ("mlp_bias", json("true"))]).unwrap();
    assert!(all.qkv_bias && all.o_bias && all.mlp_bias && !all.qk_norm);
    let qwen2 = edited(&[("model_type", json("\"qwen2\""))]).unwrap();
    assert!(qwen2.qkv_bias && !qwen2.o_bias && !qwen2.mlp_bias && !qwen2.qk_norm);
    let qwen3 = edited(&[("model_type", json("\"qwen3\"")), ("rms_norm_eps", json("1e-6"))]).unwrap();
    assert!(qwen3.qk_norm && !qwen3.qkv_bias && qwen3.norm_eps == 1e-6);
    assert_eq!(refusal(&[("attention_bias", json("1"))]).1, "true or false");
}

#[test]
fn rope_is_read_in_both_layouts() {
    let llama3 = r#""factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64"#;
    let newer = json(&format!(r#"{{"rope_type": "llama3", "rope_theta": 5e5, {llama3}}}"#));
    let older = json(&format!(r#"{{"rope_type": "llama3", {llama3}}}"#));
    let oldest = json(&format!(r#"{{"type": "llama3", {llama3}}}"#));
    let expected = edited(&[("rope_parameters", newer.clone())]).unwrap();
    assert_eq!(expected.rope_theta, 5e5);
    let scaling =
        Scaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_positions: 64.0 };
    assert_eq!(expected.rope_scaling, scaling);
    for legacy in [older.clone(), oldest] {
        let config = edited(&[("rope_theta", json("5e5")), ("rope_scaling", legacy)]).unwrap();
        assert_eq!((config.rope_theta, config.rope_scaling), (5e5, scaling));
    }
    assert_eq!(edited(&[("rope_scaling", Value::Null)]).unwrap().rope_scaling, Scaling::Default);
    assert_eq!(edited(&[("rope_parameters", json(r#"{"rope_theta": 7}"#))]).unwrap().rope_theta, 7.0);
    // Both layouts at once must agree.
    let both = |theta: &str| {
        [("rope_parameters", newer.clone()), ("rope_scaling", older.clone()), ("rope_theta", json(theta))]
    };
    assert_eq!(edited(&both("5e5")).unwrap().rope_scaling, scaling);
    assert_eq!(refusal(&both("1e4")).0, "rope_parameters.rope_theta");
}

#[test]
fn other_rope_types_are_refused_by_name() {
    for name in ["linear", "dynamic", "yarn", "longrope", "foo", "su", "mrope"] {
        for (field, key) in [("rope_scaling", "type"), ("rope_scaling", "rope_type"), ("rope_parameters", "rope_type")]
        {
            let value = json(&format!(r#"{{"{key}": "{name}", "factor": 4.0}}"#));
            let (refused, expected, found) = refusal(&[(field, value)]);
            assert_eq!(
                (refused, expected.as_str(), found.as_str()),
                (format!("{field}.{key}"), "default or llama3", name)
            );
        }
    }
    let (field, _, found) = refusal(&[("rope_scaling", json(r#"{"rope_type": "llama3", "factor": 8}"#))]);
    assert_eq!((field.as_str(), found.as_str()), ("rope_scaling.low_freq_factor", "nothing (the field is missing)"));
    assert_eq!(refusal(&[("partial_rotary_factor", json("0.5"))]).0, "partial_rotary_factor");
    let partial = json(r#"{"rope_theta": 1e4, "partial_rotary_factor": 0.25}"#);
    assert_eq!(refusal(&[("rope_parameters", partial)]).0, "rope_parameters.partial_rotary_factor");
    assert!(edited(&[("partial_rotary_factor", json("1.0"))]).is_ok());
}

#[test]
fn windows_follow_the_family() {
    let with = |family: &str, edits: &[(&str, Value)]| {
        let mut all = vec![("model_type", Value::String(family.to_owned()))];
        all.extend_from_slice(edits);
        edited(&all).map(|c| c.windows)
    };
    let eight = ("sliding_window", json("8"));
    let used = ("use_sliding_window", json("true"));
    assert_eq!(with("llama", std::slice::from_ref(&eight)).unwrap(), [None; 3]);
    assert_eq!(with("mistral", std::slice::from_ref(&eight)).unwrap(), [Some(8); 3]);
    assert_eq!(with("mistral", &[("sliding_window", Value::Null)]).unwrap(), [None; 3]);
    assert_eq!(with("mistral", &[]).unwrap(), [Some(4_096); 3]);
    for family in ["qwen2", "qwen3"] {
        assert_eq!(with(family, std::slice::from_ref(&eight)).unwrap(), [None; 3]);
        assert_eq!(with(family, &[eight.clone(), used.clone()]).unwrap(), [None; 3]);
        let from = [eight.clone(), used.clone(), ("max_window_layers", json("1"))];
        assert_eq!(with(family, &from).unwrap(), [None, Some(8), Some(8)]);
        let types = |list: &str| ("layer_types", json(list));
        let mixed = r#"["sliding_attention", "full_attention", "sliding_attention"]"#;
        let resolved = with(family, &[eight.clone(), used.clone(), types(mixed)]).unwrap();
        assert_eq!(resolved, [Some(8), None, Some(8)]);
        assert!(with(family, &[eight.clone(), types(mixed)]).is_err());
        assert!(with(family, &[eight.clone(), used.clone(), types(r#"["full_attention"]"#)]).is_err());
        let chunked = r#"["chunked_attention", "full_attention", "full_attention"]"#;
        assert!(with(family, &[eight.clone(), used.clone(), types(chunked)]).is_err());
    }
}

#[test]
fn missing_and_ill_typed_fields_are_named() {
    for name in
        ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "model_type"]
    {
        let (field, _, found) = refusal(&[(name, json("\"-\""))]);
        assert_eq!((field.as_str(), found.as_str()), (name, "nothing (the field is missing)"));
        assert_eq!(refusal(&[(name, json("[1]"))]).0, name);
    }
    let (_, expected, found) = refusal(&[("model_type", json("\"gpt2\""))]);
    assert_eq!((expected.as_str(), found.as_str()), ("one of llama, mistral, qwen2, qwen3", "gpt2"));
    for (name, bad) in [
        ("hidden_act", "\"gelu\""),
        ("rms_norm_eps", "0"),
        ("rms_norm_eps", "\"1e-5\""),
        ("rope_theta", "-1"),
        ("eos_token_id", "-1"),
        ("attention_dropout", "0.1"),
        ("quantization_config", "{}"),
        ("tie_word_embeddings", "\"yes\""),
        ("hidden_size", "4294967296"),
    ] {
        assert_eq!(refusal(&[(name, json(bad))]).0, name);
    }
    assert_eq!(edited(&[("eos_token_id", json("[2, 7]"))]).unwrap().eos, [2, 7]);
    assert_eq!(edited(&[("eos_token_id", json("2"))]).unwrap().eos, [2]);
}

#[test]
fn what_is_not_an_object_is_refused_with_its_line() {
    for (text, line) in [("{\n\"a\": \n", "3"), ("", "1"), ("{\"a\": 1,}", "1")] {
        match ModelConfig::parse(text, Path::new("c.json")) {
            Err(Error::Input { place, .. }) => assert_eq!(place, format!("c.json:{line}")),
            other => panic!("{other:?}"),
        }
    }
    assert!(ModelConfig::parse("[]", Path::new("c.json")).is_err());
}
