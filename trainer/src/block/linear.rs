//! A projection of a layer: its place within the unit, and its three products.

use mt_kernels::{Cpu, linear};
use std::ops::Range;

/// y = x w^T + bias, with w \[outputs, inputs].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Linear {
    pub(super) weight: Range<usize>,
    pub(super) bias: Option<Range<usize>>,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

impl Linear {
    /// y \[T, outputs] is overwritten.
    pub(super) fn forward(&self, cpu: &Cpu, unit: &[f32], x: &[f32], y: &mut [f32]) {
        let bias = self.bias.clone().map(|range| &unit[range]);
        let tokens = x.len() / self.inputs;
        linear::forward(cpu, x, &unit[self.weight.clone()], bias, y, tokens, self.inputs, self.outputs);
    }

    /// dx \[T, inputs] is overwritten, or added to.
    pub(super) fn backward_input(&self, cpu: &Cpu, unit: &[f32], dy: &[f32], dx: &mut [f32], add: bool) {
        let tokens = dy.len() / self.outputs;
        linear::backward_input(cpu, dy, &unit[self.weight.clone()], dx, add, tokens, self.inputs, self.outputs);
    }

    /// Gradients of weight and bias are overwritten, or added to.
    pub(super) fn backward_parameters(&self, cpu: &Cpu, grads: &mut [f32], dy: &[f32], x: &[f32], add: bool) {
        let tokens = dy.len() / self.outputs;
        let dw = &mut grads[self.weight.clone()];
        linear::backward_weight(cpu, dy, x, dw, add, tokens, self.inputs, self.outputs);
        if let Some(bias) = self.bias.clone() {
            linear::backward_bias(cpu, dy, &mut grads[bias], add, tokens, self.outputs);
        }
    }
}
