use super::*;
use std::collections::HashMap;

fn epoch(order: &RowOrder, epoch: u64) -> Vec<u64> {
    (0..order.rows()).map(|i| order.rows_of_step(epoch * order.rows() + i + 1, 1)[0].1).collect()
}

#[test]
fn every_epoch_takes_every_row_once() {
    for rows in (1..70).chain([100, 127, 128, 129, 1000, 4097]) {
        let order = RowOrder::new(rows, 7, true);
        for e in 0..3 {
            let mut seen = epoch(&order, e);
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..rows), "{rows} rows, epoch {e}");
        }
    }
}

#[test]
fn orders_differ_by_seed_and_epoch_and_repeat_for_the_same() {
    let order = RowOrder::new(1000, 1, true);
    assert_eq!(epoch(&order, 0), epoch(&RowOrder::new(1000, 1, true), 0));
    assert_ne!(epoch(&order, 0), epoch(&order, 1));
    assert_ne!(epoch(&order, 0), epoch(&RowOrder::new(1000, 2, true), 0));
    assert_ne!(epoch(&order, 0), (0..1000).collect::<Vec<_>>());
}

/// With few rows every order comes up about equally often over many epochs.
#[test]
fn small_orders_are_equally_frequent() {
    for (rows, orders, tries) in [(2u64, 2u64, 4000u64), (3, 6, 6000), (4, 24, 12_000), (5, 120, 24_000)] {
        let order = RowOrder::new(rows, 3, true);
        let mut count: HashMap<Vec<u64>, u64> = HashMap::new();
        for e in 0..tries {
            *count.entry(epoch(&order, e)).or_default() += 1;
        }
        assert_eq!(count.len() as u64, orders);
        let mean = tries as f64 / orders as f64;
        let chi2: f64 = count.values().map(|&c| (c as f64 - mean).powi(2) / mean).sum();
        // Mean orders - 1, standard deviation sqrt(2 (orders - 1)); five of them.
        let limit = orders as f64 - 1.0 + 5.0 * (2.0 * (orders as f64 - 1.0)).sqrt();
        assert!(chi2 < limit, "{rows} rows: chi2 {chi2}, limit {limit}");
    }
}

/// Neighbours do not stay together and rows do not stay in their region.
#[test]
fn large_orders_look_random() {
    let rows = 10_000;
    let order = RowOrder::new(rows, 11, true);
    let taken = epoch(&order, 0);
    let neighbours = taken.windows(2).filter(|w| w[0].abs_diff(w[1]) == 1).count();
    assert!(neighbours <= 12, "{neighbours} pairs of neighbours, 2 expected");
    let moved: f64 = taken.iter().enumerate().map(|(i, &r)| r.abs_diff(i as u64) as f64).sum::<f64>() / rows as f64;
    assert!((moved / rows as f64 - 1.0 / 3.0).abs() < 0.02, "rows move {moved} on average");
    let fixed = taken.iter().enumerate().filter(|&(i, &r)| i as u64 == r).count();
    assert!(fixed <= 8, "{fixed} rows stay in place, 1 expected");
}

#[test]
fn unshuffled_rows_come_as_they_lie_across_epoch_ends() {
    let order = RowOrder::new(5, 9, false);
    assert_eq!(order.rows_of_step(1, 3), [(0, 0), (0, 1), (0, 2)]);
    assert_eq!(order.rows_of_step(2, 3), [(0, 3), (0, 4), (1, 0)]);
    assert_eq!(order.rows_of_step(1, 12)[9..], [(1, 4), (2, 0), (2, 1)]);
}

#[test]
fn steps_cut_one_sequence_whatever_the_batch() {
    let order = RowOrder::new(37, 5, true);
    let by_one: Vec<_> = (1..=120).flat_map(|s| order.rows_of_step(s, 1)).collect();
    for batch in [2, 3, 5, 40, 120] {
        let steps = 120 / batch;
        let rows: Vec<_> = (1..=steps).flat_map(|s| order.rows_of_step(s, batch)).collect();
        assert_eq!(rows, by_one[..(steps * batch) as usize]);
    }
}

#[test]
fn a_resumed_run_takes_the_rows_of_the_run_in_one_piece() {
    let order = RowOrder::new(23, 1, true);
    let whole: Vec<_> = (1..=30).map(|s| order.rows_of_step(s, 4)).collect();
    let resumed = RowOrder::new(23, 1, true);
    assert_eq!(resumed.rows_of_step(18, 4), whole[17]);
    assert_eq!(resumed.rows_of_step(30, 4), whole[29]);
}

#[test]
fn epochs_are_rounded_up_to_whole_steps() {
    let order = RowOrder::new(10, 0, false);
    assert_eq!(order.steps_for_epochs(1, 4), 3);
    assert_eq!(order.steps_for_epochs(2, 4), 5);
    assert_eq!(order.steps_for_epochs(3, 4), 8);
    assert_eq!(order.steps_for_epochs(1, 11), 1);
    assert_eq!(order.rows_of_step(3, 4), [(0, 8), (0, 9), (1, 0), (1, 1)]);
    assert_eq!(RowOrder::new(u64::MAX / 2, 0, false).steps_for_epochs(4, 8), u128::from(u64::MAX / 2).div_ceil(2));
}

/// 10^7 rows: constant memory, and any place can be asked for.
#[test]
fn many_rows() {
    let order = RowOrder::new(10_000_019, 1, true);
    let mut rows: Vec<u64> = order.rows_of_step(77, 50_000).into_iter().map(|(_, r)| r).collect();
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows.len(), 50_000);
    assert!(rows[0] < 5_000 && rows[49_999] > 9_990_000);
}
