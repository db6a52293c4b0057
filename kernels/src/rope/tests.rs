use super::*;
use crate::reference;
use crate::testing::{Rng, close, everywhere, wide};

#[test]
fn rotates_as_the_reference_and_back() {
    for (seed, (heads, dim)) in [(1, 2), (3, 4), (9, 64), (2, 20), (1, 256)].into_iter().enumerate() {
        let mut rng = Rng(seed as u64);
        let positions: Vec<u32> = (0..37).map(|_| rng.below(50) as u32).collect();
        let x = rng.vec(37 * heads * dim);
        let table = Table::new(10_000.0, dim, Scaling::Default, 50);
        let results = everywhere("rope", |cpu| {
            let (mut y, mut back) = (x.clone(), x.clone());
            forward(cpu, &table, &positions, &mut y, heads);
            backward(cpu, &table, &positions, &mut back, heads);
            let mut there_and_back = y.clone();
            backward(cpu, &table, &positions, &mut there_and_back, heads);
            vec![y, back, there_and_back]
        });
        let frequencies: Vec<f64> = (0..dim / 2).map(|i| 10_000f64.powf(-2.0 * i as f64 / dim as f64)).collect();
        let rotated = |back| reference::rotate(&wide(&x), &positions, &frequencies, heads, back);
        // Angles up to 50 radians in f32 are good to 4e-6.
        close("forward", &results[0], &rotated(false), 3e-6);
        close("backward", &results[1], &rotated(true), 3e-6);
        close("there and back", &results[2], &wide(&x), 2e-7);
    }
}

#[test]
fn default_frequencies() {
    let f = inverse_frequencies(10_000.0, 8, Scaling::Default);
    assert_eq!(f, [1.0, 0.1, 0.01, 0.001]);
}

/// The three bands, against the formulas in f64.
#[test]
fn llama3_bands() {
    let scaling =
        Scaling::Llama3 { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_positions: 8192.0 };
    let plain = inverse_frequencies(500_000.0, 64, Scaling::Default);
    let scaled = inverse_frequencies(500_000.0, 64, scaling);
    let mut bands = [0; 3];
    for (f, got) in plain.iter().zip(&scaled) {
        let f = f64::from(*f);
        let wavelength = 2.0 * std::f64::consts::PI / f;
        let (band, want) = if wavelength < 8192.0 / 4.0 {
            (0, f)
        } else if wavelength > 8192.0 {
            (2, f / 32.0)
        } else {
            let smooth = (8192.0 / wavelength - 1.0) / 3.0;
            (1, (1.0 - smooth) * f / 32.0 + smooth * f)
        };
        bands[band] += 1;
        assert!((f64::from(*got) - want).abs() < 3e-6 * want, "{got} {want}");
    }
    assert!(bands.iter().all(|n| *n > 0), "{bands:?}");
}

#[test]
fn position_zero_is_the_identity() {
    let table = Table::new(1e6, 16, Scaling::Default, 1);
    let mut x = Rng(2).vec(32);
    let before = x.clone();
    forward(&Cpu::new(1).unwrap(), &table, &[0, 0], &mut x, 1);
    assert_eq!(x, before);
}
