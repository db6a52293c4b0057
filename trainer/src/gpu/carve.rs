//! Cutting device memory into parts that begin where wide loads and matrix products like it. What is cut, and how many
//! bytes that takes, is written down once: a list of parts is taken from views, or merely counted.

use mt_kernels::cuda::{Element, View, ViewMut};

/// Bytes of which every part begins at a multiple.
const LINE: usize = 256;

/// Gives parts, one after the other.
pub(super) trait Take {
    /// What a part of elements `T` is.
    type Part<T: Element>;

    /// The next `n` elements.
    fn take<T: Element>(&mut self, n: usize) -> Self::Part<T>;
}

/// Counts bytes, in whole lines.
#[derive(Default)]
pub(super) struct Count {
    pub(super) bytes: usize,
}

impl Take for Count {
    type Part<T: Element> = ();

    fn take<T: Element>(&mut self, n: usize) {
        self.bytes += (n * size_of::<T>()).next_multiple_of(LINE);
    }
}

/// Cuts memory that is written. Panics if a part is more than is left.
pub(super) struct Carve<'a> {
    memory: ViewMut<'a, u8>,
}

impl<'a> Carve<'a> {
    pub(super) fn new(memory: ViewMut<'a, u8>) -> Carve<'a> {
        Carve { memory }
    }
}

impl<'a> Take for Carve<'a> {
    type Part<T: Element> = ViewMut<'a, T>;

    fn take<T: Element>(&mut self, n: usize) -> ViewMut<'a, T> {
        let bytes = n * size_of::<T>();
        let line = bytes.next_multiple_of(LINE).min(self.memory.len());
        self.memory.take_front(line).slice(0..bytes).cast()
    }
}

/// Cuts memory that is read. Panics if a part is more than is left.
pub(super) struct Read<'a> {
    memory: View<'a, u8>,
}

impl<'a> Read<'a> {
    pub(super) fn new(memory: View<'a, u8>) -> Read<'a> {
        Read { memory }
    }
}

impl<'a> Take for Read<'a> {
    type Part<T: Element> = View<'a, T>;

    fn take<T: Element>(&mut self, n: usize) -> View<'a, T> {
        let bytes = n * size_of::<T>();
        let line = bytes.next_multiple_of(LINE).min(self.memory.len());
        let part = self.memory.slice(0..bytes);
        self.memory = self.memory.slice(line..self.memory.len());
        part.cast()
    }
}
