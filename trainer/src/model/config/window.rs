//! Sliding windows per layer, resolved as each family's own code resolves them.

use super::super::fields::Fields;
use super::Family;
use crate::error::Result;
use serde_json::Value;

/// Window of the families that have one, where the configuration does not say.
const WINDOW_DEFAULT: usize = 4_096;
/// First layer with a window, where the configuration does not say.
const MAX_WINDOW_LAYERS_DEFAULT: usize = 28;

/// One entry a layer; None sees everything before it.
pub(super) fn read(top: &Fields<'_>, family: Family, layers: usize) -> Result<Vec<Option<usize>>> {
    let given = top.count_opt("sliding_window", 1)?;
    // Null means no window; an absent key means the family's default.
    let window = if top.has_key("sliding_window") { given } else { Some(WINDOW_DEFAULT) };
    match family {
        Family::Llama => Ok(vec![None; layers]),
        Family::Mistral => Ok(vec![window; layers]),
        Family::Qwen2 | Family::Qwen3 => {
            let used = top.flag("use_sliding_window", false)?;
            let window = window.filter(|_| used);
            match top.get("layer_types") {
                Some(types) => from_types(top, types, window, layers),
                None => {
                    let first = top.count_opt("max_window_layers", 0)?.unwrap_or(MAX_WINDOW_LAYERS_DEFAULT);
                    Ok((0..layers).map(|layer| window.filter(|_| layer >= first)).collect())
                }
            }
        }
    }
}

fn from_types(top: &Fields<'_>, types: &Value, window: Option<usize>, layers: usize) -> Result<Vec<Option<usize>>> {
    let expected = format!("a list of {layers} names, full_attention or sliding_attention");
    let list = types.as_array().filter(|list| list.len() == layers);
    let list = list.ok_or_else(|| top.wrong("layer_types", &expected, types))?;
    list.iter()
        .map(|item| match item.as_str() {
            Some("full_attention") => Ok(None),
            Some("sliding_attention") if window.is_none() => {
                let expected = "no sliding_attention where use_sliding_window is false or sliding_window is null";
                Err(top.wrong("layer_types", expected, types))
            }
            Some("sliding_attention") => Ok(window),
            _ => Err(top.wrong("layer_types", &expected, item)),
        })
        .collect()
}
