//! Elements that arrive in pieces of one size and leave in pieces of another.

/// How much of a buffer is filled, from its front. The caller owns the buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    filled: usize,
}

impl Queue {
    /// Number of elements held.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// The place of the next `n` elements, which do not count as held yet.
    pub fn room<'b>(&self, buffer: &'b mut [f32], n: usize) -> &'b mut [f32] {
        &mut buffer[self.filled..self.filled + n]
    }

    /// Counts the next `n` elements as held.
    pub fn push(&mut self, n: usize) {
        self.filled += n;
    }

    /// Drops the first `n` elements: the others move to the front.
    pub fn drop_front(&mut self, buffer: &mut [f32], n: usize) {
        buffer.copy_within(n..self.filled, 0);
        self.filled -= n;
    }
}
