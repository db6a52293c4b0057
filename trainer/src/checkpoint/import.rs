//! Import: the first weights of a model, streamed into the `hi` and `lo` planes of a store.
//!
//! What it is not: it does not commit, and it does not write moments, which read as zeros until they are.
//!
//! Invariants: RAM is bounded by a block of weights beside the engine's arena, whatever the model; padding behind a
//! unit's last element is zero.

use super::source::Source;
use super::stream::{self, State};
use crate::error::Result;
use crate::layout::{Chunk, HI, LO};
use mt_engine::Mode;
use mt_kernels::{Cpu, split};

/// Most weights held as f32 at a time.
pub(super) const BLOCK: usize = 1 << 20;

/// What an import did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportReport {
    /// Tensors.
    pub tensors: usize,
    /// Elements.
    pub elements: u64,
    /// One line per thing the user should know of the checkpoint.
    pub notices: Vec<String>,
}

/// Writes the weights of `source` to the store. `progress` gets the bytes done and all bytes (4 an element), after
/// every block; its error ends the import.
///
/// # Errors
/// Those of [`Source::read_unit`], of the engine and of `progress`. The store then has part of the weights and must not
/// be committed.
pub fn import(
    state: &State<'_>,
    source: &Source,
    cpu: &Cpu,
    progress: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<ImportReport> {
    let elements = state.manifest.elements();
    let mut done = 0;
    let chunks = stream::chunks(state.manifest, state.layout);
    let block = chunks.iter().map(|(_, chunk)| chunk.len).max().unwrap_or(0).min(BLOCK);
    let mut weights = vec![0.0; block];
    let sweep = stream::begin(state, &[HI, LO], Mode::Write)?;
    for (unit, chunk) in chunks {
        let mut hi = sweep.host_mut(chunk.run(HI))?;
        let mut lo = sweep.host_mut(chunk.run(LO))?;
        let mut planes = (bytemuck::cast_slice_mut(&mut hi), bytemuck::cast_slice_mut(&mut lo));
        fill(source, cpu, unit, &chunk, &mut weights, &mut planes, &mut |count| {
            done += 4 * count as u64;
            progress(done, 4 * elements)
        })?;
    }
    sweep.finish()?;
    let tensors = state.manifest.units.iter().map(|u| u.tensors.len()).sum();
    Ok(ImportReport { tensors, elements, notices: source.notices().to_vec() })
}

/// Fills one chunk's planes, block by block, and the padding behind it with zeros.
fn fill(
    source: &Source,
    cpu: &Cpu,
    unit: usize,
    chunk: &Chunk,
    weights: &mut [f32],
    (hi, lo): &mut (&mut [u16], &mut [i16]),
    filled: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<()> {
    for start in (0..chunk.len).step_by(weights.len()) {
        let end = chunk.len.min(start + weights.len());
        let weights = &mut weights[..end - start];
        source.read_unit(unit, chunk.start + start, weights, cpu.threads())?;
        split::split(cpu, weights, &mut hi[start..end], &mut lo[start..end])
            .expect("the source refuses weights that the planes cannot hold");
        filled(end - start)?;
    }
    hi[chunk.len..].fill(0);
    lo[chunk.len..].fill(0);
    Ok(())
}
