use super::*;
use crate::reference;
use crate::testing::{Rng, everywhere, same, wide};

/// Lengths of pieces that cut the table [V,H] at rows and within them.
fn pieces(elements: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..elements).step_by(step).map(move |first| first..(first + step).min(elements))
}

#[test]
fn pieces_give_what_the_whole_table_gives() {
    for (hidden, vocabulary, tokens) in [(1, 3, 5), (7, 11, 40), (64, 2000, 130)] {
        let mut rng = Rng(hidden as u64);
        let ids: Vec<u32> = (0..tokens).map(|_| rng.below(vocabulary) as u32).collect();
        let (table, dx) = (rng.vec(vocabulary * hidden), rng.vec(tokens * hidden));
        let dw0 = rng.vec(table.len());
        for step in [1, 5, hidden, 3 * hidden + 1, 1024, table.len()] {
            let step = if table.len() > 10_000 { step.max(900) } else { step };
            let results = everywhere("embedding", |cpu| {
                let (mut out, mut dw) = (vec![f32::NAN; dx.len()], dw0.clone());
                for piece in pieces(table.len(), step) {
                    gather_piece(cpu, &ids, hidden, piece.start, &table[piece.clone()], &mut out);
                    scatter_add_piece(cpu, &ids, hidden, piece.start, &dx, &mut dw[piece]);
                }
                vec![out, dw]
            });
            let rows: Vec<f32> = reference::gather(&ids, &wide(&table), hidden).iter().map(|x| *x as f32).collect();
            same("gather", &results[0], &rows);
            let mut dw = dw0.clone();
            for (id, dx) in ids.iter().zip(dx.chunks_exact(hidden)) {
                dw[*id as usize * hidden..].iter_mut().zip(dx).for_each(|(to, dx)| *to += dx);
            }
            same("scatter in token order", &results[1], &dw);
            let mut wanted = wide(&dw0);
            reference::scatter_add(&ids, &wide(&dx), &mut wanted, hidden);
            crate::testing::close("scatter", &results[1], &wanted, 1e-6);
        }
    }
}
