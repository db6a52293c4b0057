//! Schedules of sweeps: which runs a step touches in which order, and what it computes on them.
//!
//! A *program* is a list of instructions. An instruction takes the leases of its accesses in order, computes one
//! operation on them, and gives all of them back. The engine's schedule is read off the program, and the executor walks
//! the same program: the two cannot differ, and no lease outlives an instruction. What must outlive one (a layer's
//! joined weights, a tile of the head's matrix, a chunk of the embedding) is carried in the workspace.
//!
//! Programs: the *steady* one trains a step, with the pending update of the step before in its forward (fused-forward)
//! or its own updates in its backward (fused-backward); the *update-only* one applies a pending update; the *inference*
//! one computes logits. The program depends on the model, the shapes, the layout and what is kept for the
//! backward, never on what is resident.

mod ahead;
mod backward;
mod behind;
mod cost;
mod forward;
mod levels;
mod operation;
mod phase;
mod program;
mod runs;
#[cfg(test)]
mod tests;
mod writer;

pub use ahead::UpdateOn;
pub use levels::{Choice, Front, Kept, Room, Side, candidates};
pub use operation::{Gradients, Operation, Sink};
pub use phase::Phase;
pub use program::{Instruction, LABEL_ONCE, Program};
pub use runs::Activations;
pub use writer::{Description, OnGpu, Writer};
