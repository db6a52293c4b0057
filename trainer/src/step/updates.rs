//! Where each unit's update runs beside a GPU: on the processor, on the GPU, or both, each for its share of the layers.
//! Pure. The bits are the same wherever it runs.
//!
//! The processor reads and writes RAM. The GPU is much faster, but needs the state: 16 bytes a parameter up the link
//! (in backward, where it has the gradients, 12) and 12 down, unless the unit's state lives in VRAM, which only a unit
//! that the GPU updates can. So a first share of the layers is what spare VRAM holds, and more of them pay until the
//! link is as busy as the processor.

use super::levels::faster;
use super::prepare::{Inputs, STATE_BYTES};
use super::prepared::Prepared;
use crate::schedule::UpdateOn;
use mt_engine::plan::Station;

/// The first step of the search around a good share is this part of the layers.
const FINER: usize = 8;

impl Inputs<'_> {
    /// The fastest of updates on the processor, on the GPU, and on both in the shares that look best. Where they do not
    /// fit on the processor, the plan given has them on the GPU.
    pub(super) fn with_updates(&self, given: Prepared) -> Prepared {
        let Some(share) = given.device() else { return given };
        let layers = self.config.layers;
        let layer = self.manifest.units[1].elements as u64;
        let spare = share.window_bytes.saturating_sub(8 * layer);
        let in_vram = usize::try_from(spare / (self.moved_bytes() * layer)).unwrap_or(layers).min(layers);
        let balanced = self.balanced(&given, in_vram);
        let mut tried = vec![self.layers_on_gpu(&given)];
        let mut best = given;
        for count in [in_vram, balanced, layers] {
            if !tried.contains(&count) {
                tried.push(count);
                best = self.faster_with(best, count);
            }
        }
        best
    }

    /// The same with a few layers more or fewer on the GPU, as long as that is faster.
    pub(super) fn with_finer_shares(&self, mut best: Prepared) -> Prepared {
        let layers = self.config.layers;
        if best.device().is_none() || self.options.is_rough {
            return best;
        }
        let mut step = layers / FINER;
        while step > 0 {
            let count = self.layers_on_gpu(&best);
            let before = best.prediction.seconds;
            for other in [(count + step).min(layers), count.saturating_sub(step)] {
                if other != count {
                    best = self.faster_with(best, other);
                }
            }
            step = if best.prediction.seconds < before { step } else { step / 2 };
        }
        best
    }

    /// How many layers the GPU updates.
    fn layers_on_gpu(&self, it: &Prepared) -> usize {
        let layers = it.scheme.updates.iter().skip(1).take(self.config.layers);
        layers.filter(|on| **on == UpdateOn::Gpu).count()
    }

    /// The faster of a plan and the one with `count` layers updated on the GPU.
    fn faster_with(&self, best: Prepared, count: usize) -> Prepared {
        let updates = spread(self.config.layers, count, self.options.fused_backward);
        match self.with_layout(best.layout.clone(), best.kept().clone(), updates) {
            Ok(found) => faster(best, found),
            Err(_) => best,
        }
    }

    /// Bytes a parameter that an update on the GPU needs there.
    fn moved_bytes(&self) -> u64 {
        let of_gradient = if self.options.fused_backward { 0 } else { size_of::<f32>() };
        (STATE_BYTES + of_gradient) as u64
    }

    /// Layers on the GPU with which the processor takes as long for its updates as the link for the GPU's, where
    /// `in_vram` of them take nothing of it.
    fn balanced(&self, given: &Prepared, in_vram: usize) -> usize {
        let busy = |station: fn(&Station) -> bool| {
            let all = given.prediction.busy.iter().filter(|busy| station(&busy.station));
            all.map(|busy| busy.seconds).sum::<f64>()
        };
        let layers = self.config.layers as f64;
        let cpu_s = busy(|station| *station == Station::HostCompute) / layers;
        let layer = self.manifest.units[1].elements as f64;
        let rate = self.options.rates.gpu.link.upload_both_bytes_per_s;
        let update_s = layer * self.moved_bytes() as f64 / rate;
        let weights_s = layer * self.options.target.element_bytes() as f64 / rate;
        // (layers - n) cpu_s = (n - in_vram) update_s + (layers - n) weights_s
        let count = (layers * (cpu_s - weights_s) + in_vram as f64 * update_s) / (cpu_s - weights_s + update_s);
        (count.max(0.0).round() as usize).clamp(in_vram, self.config.layers)
    }
}

/// The updates of `count` of the layers on the GPU, spread evenly, those of the other units on the processor; with all
/// layers, those of all units.
///
/// In backward the first units come last, and nothing hides what is updated with them: they are the first that the GPU
/// gets. 7 B parameters, 8 sequences of 1,024 tokens in 40 GiB of an H200: 0.966 s a step predicted, 1.037 without.
fn spread(layers: usize, count: usize, in_backward: bool) -> Vec<UpdateOn> {
    let mut updates = vec![UpdateOn::Cpu; layers + 2];
    if count == layers {
        updates.fill(UpdateOn::Gpu);
    }
    for layer in (0..layers).filter(|layer| (layer + 1) * count / layers > layer * count / layers) {
        updates[layer + 1] = UpdateOn::Gpu;
    }
    if in_backward && count > 0 {
        updates[1..=layers].reverse();
        updates[0] = UpdateOn::Gpu;
    }
    updates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_spread_evenly() {
        let on_gpu = |layers, count, in_backward| {
            let updates = spread(layers, count, in_backward);
            (0..layers + 2).filter(|unit| updates[*unit] == UpdateOn::Gpu).collect::<Vec<_>>()
        };
        assert_eq!(on_gpu(4, 0, false), [0; 0]);
        assert_eq!(on_gpu(4, 1, false), [4]);
        assert_eq!(on_gpu(4, 2, false), [2, 4]);
        assert_eq!(on_gpu(2, 2, false), [0, 1, 2, 3]);
        assert_eq!(on_gpu(4, 0, true), [0; 0]);
        assert_eq!(on_gpu(4, 1, true), [0, 1]);
        assert_eq!(on_gpu(4, 2, true), [0, 1, 3]);
        assert_eq!(on_gpu(2, 2, true), [0, 1, 2, 3]);
    }
}
