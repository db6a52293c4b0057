//! Text that the built-in model writes at the end of a run, so that what it learned can be read.

use super::inputs::Inputs;
use crate::batch::MicroBatch;
use crate::data::rows::Builder;
use crate::error::Result;
use crate::step::Trainer;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Bytes of the data that the model is given first.
const PROMPT: usize = 16;
/// Bytes that it writes.
const LENGTH: usize = 64;
/// Below 1 the model keeps to what it is surer of.
const TEMPERATURE: f64 = 0.6;

/// Continues the beginning of the data's first row. Gives what the model wrote and what it was given.
pub(super) fn write(trainer: &mut Trainer, inputs: &Inputs, seed: u64) -> Result<(String, String)> {
    let first = inputs.data.batch(1)?.micro.swap_remove(0);
    let given: Vec<u32> = first.ids.iter().copied().take(PROMPT.min(inputs.shapes.seq / 2)).collect();
    let mut ids = given.clone();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    while ids.len() < (given.len() + LENGTH).min(inputs.shapes.seq) {
        let logits = trainer.logits(&row(&ids))?;
        let vocab = inputs.model.config.vocab;
        let last = &logits[(ids.len() - 1) * vocab..ids.len() * vocab];
        let uniform = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        ids.push(draw(last, uniform));
    }
    Ok((text(&ids[given.len()..]), text(&given)))
}

/// One row without targets that matter.
fn row(ids: &[u32]) -> MicroBatch {
    let mut builder = Builder::new(ids.len(), 1);
    builder.push(ids, &[0]);
    builder.finish()
}

/// The id at `uniform` (from 0 to below 1) of the distribution that the logits give.
fn draw(logits: &[f32], uniform: f64) -> u32 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: &f32| (f64::from(logit - highest) / TEMPERATURE).exp();
    let mut left = uniform * logits.iter().map(weight).sum::<f64>();
    for (id, logit) in logits.iter().enumerate() {
        left -= weight(logit);
        if left < 0.0 {
            return id as u32;
        }
    }
    logits.len() as u32 - 1
}

/// Ids that are bytes, as text; what is no text shows as a replacement character.
fn text(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().map(|id| u8::try_from(*id).unwrap_or(b'?')).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_distribution() {
        let logits = [f32::NEG_INFINITY, 1.0, 1.0, f32::NEG_INFINITY];
        assert_eq!(draw(&logits, 0.0), 1);
        assert_eq!(draw(&logits, 0.49), 1);
        assert_eq!(draw(&logits, 0.51), 2);
        assert_eq!(draw(&logits, 0.999), 2);
    }
}
