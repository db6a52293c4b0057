use super::*;
use crate::reference;
use crate::testing::{Rng, close, everywhere, wide};

/// (tokens, inputs, outputs): squares, odd edges, single tokens, single inputs and single outputs, several tiles.
const SHAPES: [(usize, usize, usize); 18] = [
    (1, 1, 1),
    (1, 64, 1),
    (1, 576, 192),
    (1, 1536, 577),
    (2, 3, 5),
    (5, 1, 7),
    (7, 2, 9),
    (33, 100, 1),
    (64, 64, 64),
    (16, 16, 16),
    (63, 65, 129),
    (100, 576, 192),
    (129, 33, 385),
    (200, 513, 300),
    (255, 1025, 67),
    (385, 48, 385),
    (770, 17, 2),
    (1024, 192, 400),
];

#[test]
fn products_equal_the_reference_and_no_thread_count_changes_a_bit() {
    for (i, (t, inputs, outputs)) in SHAPES.into_iter().enumerate() {
        let mut rng = Rng(i as u64);
        let (x, w, dy) = (rng.vec(t * inputs), rng.vec(outputs * inputs), rng.vec(t * outputs));
        let (bias, dx0, dw0, db0) =
            (rng.vec(outputs), rng.vec(t * inputs), rng.vec(outputs * inputs), rng.vec(outputs));
        let what = format!("{t} x {inputs} x {outputs}");
        let results = everywhere(&what, |cpu| {
            let (mut y, mut with_bias) = (vec![f32::NAN; t * outputs], vec![f32::NAN; t * outputs]);
            forward(cpu, &x, &w, None, &mut y, t, inputs, outputs);
            forward(cpu, &x, &w, Some(&bias), &mut with_bias, t, inputs, outputs);
            let (mut dx, mut dw, mut db) =
                (vec![f32::NAN; t * inputs], vec![f32::NAN; w.len()], vec![f32::NAN; outputs]);
            backward_input(cpu, &dy, &w, &mut dx, false, t, inputs, outputs);
            backward_weight(cpu, &dy, &x, &mut dw, false, t, inputs, outputs);
            backward_bias(cpu, &dy, &mut db, false, t, outputs);
            let (mut dx_added, mut dw_added, mut db_added) = (dx0.clone(), dw0.clone(), db0.clone());
            backward_input(cpu, &dy, &w, &mut dx_added, true, t, inputs, outputs);
            backward_weight(cpu, &dy, &x, &mut dw_added, true, t, inputs, outputs);
            backward_bias(cpu, &dy, &mut db_added, true, t, outputs);
            vec![y, with_bias, dx, dw, db, dx_added, dw_added, db_added]
        });
        let (x, w, dy) = (wide(&x), wide(&w), wide(&dy));
        let plus = |a: &[f64], b: &[f32]| a.iter().zip(b).map(|(a, b)| a + f64::from(*b)).collect::<Vec<_>>();
        let y = reference::linear_forward(&x, &w, None, inputs, outputs);
        let with_bias = reference::linear_forward(&x, &w, Some(&wide(&bias)), inputs, outputs);
        let dx = reference::linear_backward_input(&dy, &w, inputs, outputs);
        let dw = reference::linear_backward_weight(&dy, &x, inputs, outputs);
        let db = reference::linear_backward_bias(&dy, outputs);
        let added = [plus(&dx, &dx0), plus(&dw, &dw0), plus(&db, &db0)];
        let wants = [y, with_bias, dx, dw, db].into_iter().chain(added);
        for (part, (got, want)) in results.iter().zip(wants).enumerate() {
            close(&format!("{what}: {part}"), got, &want, 2e-6);
        }
    }
}

#[test]
fn scratch_is_bounded_by_a_tile() {
    assert_eq!(scratch_bytes(2, 384, 384, 512), 2 * scratch_bytes(1, 384, 384, 512));
    assert_eq!(scratch_bytes(1, 100_000, 100_000, 16384), scratch_bytes(1, 1000, 1000, 16384));
    assert!(scratch_bytes(1, 4096, 49152, 8192) <= 64 << 20);
}
