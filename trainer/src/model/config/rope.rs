//! Rotary positions as `config.json` describes them: `rope_parameters`, or `rope_theta` and `rope_scaling`.

use super::super::fields::Fields;
use crate::error::Result;
use mt_kernels::rope::Scaling;

const THETA_DEFAULT: f64 = 10_000.0;

/// Base and scaling. Where both key layouts are present they must say the same.
pub(super) fn read(top: &Fields<'_>) -> Result<(f64, Scaling)> {
    whole_head(top)?;
    let top_theta = top.positive_opt("rope_theta")?;
    let newer = top.object("rope_parameters")?;
    let older = top.object("rope_scaling")?;
    let mut theta = top_theta;
    let mut scaling: Option<Scaling> = None;
    for (object, name) in [(newer, "rope_parameters"), (older, "rope_scaling")] {
        let Some(object) = object else { continue };
        whole_head(&object)?;
        if let Some(own) = object.positive_opt("rope_theta")? {
            if theta.is_some_and(|t| t != own) {
                let expected = format!("the value given elsewhere ({})", theta.unwrap_or(own));
                return Err(object.refuse("rope_theta", &expected, own.to_string()));
            }
            theta = Some(own);
        }
        let own = read_scaling(&object)?;
        if scaling.is_some_and(|s| s != own) {
            return Err(top.refuse(name, "the same as rope_parameters", format!("{own:?}")));
        }
        scaling = Some(own);
    }
    Ok((theta.unwrap_or(THETA_DEFAULT), scaling.unwrap_or(Scaling::Default)))
}

/// Rotation of only a part of each head is not supported.
fn whole_head(object: &Fields<'_>) -> Result<()> {
    match object.get("partial_rotary_factor") {
        Some(value) if value.as_f64() != Some(1.0) => Err(object.wrong("partial_rotary_factor", "1", value)),
        _ => Ok(()),
    }
}

fn read_scaling(object: &Fields<'_>) -> Result<Scaling> {
    let name = if object.get("rope_type").is_some() { "rope_type" } else { "type" };
    match object.text(name)? {
        None | Some("default") => Ok(Scaling::Default),
        Some("llama3") => {
            let scaling = Scaling::Llama3 {
                factor: object.positive("factor")?,
                low_freq_factor: object.positive("low_freq_factor")?,
                high_freq_factor: object.positive("high_freq_factor")?,
                original_max_positions: object.positive("original_max_position_embeddings")?,
            };
            match scaling {
                Scaling::Llama3 { low_freq_factor: low, high_freq_factor: high, .. } if high <= low => {
                    let expected = format!("more than low_freq_factor ({low})");
                    Err(object.refuse("high_freq_factor", &expected, high.to_string()))
                }
                scaling => Ok(scaling),
            }
        }
        Some(other) => Err(object.refuse(name, "default or llama3", other)),
    }
}
