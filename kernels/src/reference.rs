//! Plain references: no tiles, no SIMD, no threads, in f64 where the kernel is f32.
//!
//! Each function says what its kernel means, as directly as loops can. Gradients are written as formulas and checked
//! against finite differences of the forward functions; the kernels are then compared with them.

mod attention;
mod linear;
mod loss;
mod norm;
mod state;

pub use attention::{attention_backward, attention_forward};
pub use linear::{
    gather, linear_backward_bias, linear_backward_input, linear_backward_weight, linear_forward, scatter_add,
};
pub use loss::cross_entropy;
pub use norm::{rmsnorm_backward, rmsnorm_forward, rotate, swiglu_backward, swiglu_forward};
pub use state::{AdamW, adamw, sum_squares};

#[cfg(test)]
mod tests;
