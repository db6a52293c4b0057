use super::*;
use crate::reference;
use crate::testing::{Rng, close, everywhere, wide};

#[test]
fn equals_the_reference_on_every_processor() {
    let shapes = [(1, 1), (3, 7), (17, 16), (100, 576), (33, 129), (5, 4096)];
    for (seed, (rows, columns)) in shapes.into_iter().enumerate() {
        let mut rng = Rng(seed as u64);
        let (x, w, dy) = (rng.vec(rows * columns), rng.vec(columns), rng.vec(rows * columns));
        let (dx0, dw0) = (rng.vec(rows * columns), rng.vec(columns));
        let results = everywhere("rmsnorm", |cpu| {
            let (mut y, mut rstd) = (vec![f32::NAN; x.len()], vec![f32::NAN; rows]);
            forward(cpu, &x, &w, 1e-5, &mut y, &mut rstd);
            let (mut dx, mut dx_added) = (vec![f32::NAN; x.len()], dx0.clone());
            let (mut dw, mut dw_added) = (vec![0.0; columns], dw0.clone());
            backward(cpu, &dy, &x, &w, &rstd, &mut dx, false, &mut dw);
            backward(cpu, &dy, &x, &w, &rstd, &mut dx_added, true, &mut dw_added);
            vec![y, rstd, dx, dw, dx_added, dw_added]
        });
        let eps = f64::from(1e-5f32);
        let (y, rstd) = reference::rmsnorm_forward(&wide(&x), &wide(&w), eps);
        let (dx, dw) = reference::rmsnorm_backward(&wide(&dy), &wide(&x), &wide(&w), eps);
        let plus = |a: &[f64], b: &[f32]| a.iter().zip(b).map(|(a, b)| a + f64::from(*b)).collect::<Vec<_>>();
        let wants = [y, rstd, dx.clone(), dw.clone(), plus(&dx, &dx0), plus(&dw, &dw0)];
        // A single column is normalised to a constant; what is left of dx there is the rounding of a difference.
        let parts = results.iter().zip(&wants).enumerate().filter(|(part, _)| columns > 1 || *part != 2);
        for (part, (got, want)) in parts {
            close(&format!("{rows} x {columns}: {part}"), got, want, 5e-7);
        }
    }
}

#[test]
fn a_row_of_zeros_is_bounded_by_eps() {
    let cpu = Cpu::new(1).unwrap();
    let (mut y, mut rstd) = ([9.0; 4], [9.0; 1]);
    forward(&cpu, &[0.0; 4], &[2.0; 4], 1e-6, &mut y, &mut rstd);
    assert_eq!(y, [0.0; 4]);
    assert!((rstd[0] - 1000.0).abs() < 0.1);
}
