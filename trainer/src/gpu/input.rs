//! What a step's micro-batches tell the kernels, in one piece of numbers that is uploaded when the step begins.
//!
//! Of each micro-batch, one after the other: ids, targets and positions \[T]; for each different window the first token
//! that each token sees \[T]; and its tokens in the order of their ids, whose length varies, with room for the longest.

use super::scratch::Rows;
use super::workspace::distinct;
use crate::batch::MicroBatch;
use crate::block::first_seen;
use mt_kernels::cuda::View;
use mt_kernels::cuda::embedding::{DeviceOrder, Order};

/// Where everything lies, and the numbers until they are uploaded.
pub(super) struct Input {
    /// The model's different windows, and which of them each layer has.
    windows: Vec<Option<usize>>,
    of_layer: Vec<usize>,
    /// First number of each micro-batch, and its tokens.
    begins: Vec<(usize, usize)>,
    numbers: Vec<u32>,
    /// Different ids of each micro-batch.
    distinct: Vec<usize>,
}

impl Input {
    pub(super) fn new(windows: &[Option<usize>], micro: &[Rows]) -> Input {
        let all = distinct(windows);
        let index = |window| all.iter().position(|other| other == window).expect("every window is among them");
        let of_layer = windows.iter().map(index).collect();
        let mut input = Input { of_layer, begins: Vec::new(), numbers: Vec::new(), distinct: Vec::new(), windows: all };
        let mut begin = 0;
        for rows in micro {
            input.begins.push((begin, rows.tokens()));
            begin += input.room(rows.tokens());
        }
        input.numbers.reserve_exact(begin);
        input
    }

    /// Numbers of a micro-batch of so many tokens.
    pub(super) fn room(&self, tokens: usize) -> usize {
        (3 + self.windows.len() + 3) * tokens + 1
    }

    /// The numbers of a step.
    pub(super) fn fill(&mut self, micro: &[MicroBatch]) -> &[u32] {
        self.numbers.clear();
        self.distinct.clear();
        for (it, (begin, tokens)) in micro.iter().zip(&self.begins) {
            let lengths = [&it.ids, &it.targets, &it.positions, &it.document].map(|list| list.len());
            assert_eq!(lengths, [*tokens; 4], "a micro-batch of the step's shape");
            for list in [&it.ids, &it.targets, &it.positions] {
                self.numbers.extend_from_slice(list);
            }
            for window in &self.windows {
                let end = self.numbers.len() + tokens;
                self.numbers.resize(end, 0);
                first_seen(&it.document, it.seq, *window, &mut self.numbers[end - tokens..]);
            }
            let order = Order::new(&it.ids);
            order.append(&mut self.numbers);
            self.distinct.push(order.ids.len());
            self.numbers.resize(begin + self.room(*tokens), 0);
        }
        &self.numbers
    }

    /// A list of a micro-batch among what was uploaded.
    fn list<'a>(&self, uploaded: View<'a, u32>, micro: usize, index: usize) -> View<'a, u32> {
        let (begin, tokens) = self.begins[micro];
        let begin = begin + index * tokens;
        uploaded.slice(begin..begin + tokens)
    }

    pub(super) fn ids<'a>(&self, uploaded: View<'a, u32>, micro: usize) -> View<'a, u32> {
        self.list(uploaded, micro, 0)
    }

    pub(super) fn targets<'a>(&self, uploaded: View<'a, u32>, micro: usize) -> View<'a, u32> {
        self.list(uploaded, micro, 1)
    }

    pub(super) fn positions<'a>(&self, uploaded: View<'a, u32>, micro: usize) -> View<'a, u32> {
        self.list(uploaded, micro, 2)
    }

    /// The first token that each token sees in a layer.
    pub(super) fn first<'a>(&self, uploaded: View<'a, u32>, micro: usize, layer: usize) -> View<'a, u32> {
        self.list(uploaded, micro, 3 + self.of_layer[layer])
    }

    /// The tokens in the order of their ids.
    pub(super) fn order<'a>(&self, uploaded: View<'a, u32>, micro: usize) -> DeviceOrder<'a> {
        let (begin, tokens) = self.begins[micro];
        let (begin, distinct) = (begin + (3 + self.windows.len()) * tokens, self.distinct[micro]);
        DeviceOrder::new(uploaded.slice(begin..begin + 2 * distinct + 1 + tokens), distinct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::NO_TARGET;

    fn micro(rows: usize, ids: &[u32]) -> MicroBatch {
        let seq = ids.len() / rows;
        MicroBatch {
            rows,
            seq,
            ids: ids.to_vec(),
            targets: vec![NO_TARGET; ids.len()],
            positions: (0..ids.len()).map(|t| (t % seq) as u32).collect(),
            document: vec![0; ids.len()],
        }
    }

    #[test]
    fn every_micro_batch_has_its_room() {
        let rows = [Rows { rows: 2, seq: 3 }, Rows { rows: 1, seq: 3 }];
        let mut input = Input::new(&[None, Some(2), None], &rows);
        for _ in 0..2 {
            let numbers = input.fill(&[micro(2, &[7, 2, 7, 9, 2, 7]), micro(1, &[1, 1, 1])]).to_vec();
            assert_eq!(numbers.len(), 8 * 9 + 2);
            assert_eq!(&numbers[..6], [7, 2, 7, 9, 2, 7]);
            assert_eq!(&numbers[12..18], [0, 1, 2, 0, 1, 2]);
            // What each token sees first: everything, or one token before itself.
            assert_eq!(&numbers[18..30], [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1]);
            assert_eq!(&numbers[30..43], [2, 7, 9, 0, 2, 5, 6, 1, 4, 0, 2, 5, 3]);
            let second = 8 * 6 + 1;
            assert_eq!(&numbers[second..second + 3], [1, 1, 1]);
            assert_eq!(&numbers[second + 15..second + 21], [1, 0, 3, 0, 1, 2]);
            assert_eq!(input.distinct, [3, 1]);
        }
        assert_eq!(input.of_layer, [0, 1, 0]);
    }
}
