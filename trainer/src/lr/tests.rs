use super::*;

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-15 * expected.abs().max(1.0), "found {found:e}, expected {expected:e}");
}

/// The rates that the reference runs of the golden cases used.
#[test]
fn golden_rates() {
    let lr = LearningRate::new(0.001, LrSchedule::Cosine, Warmup::Steps(2), 0.1, 6);
    let expected = [0.0005, 0.001, 0.0008681980515339464, 0.00055, 0.00023180194846605365, 0.0001];
    for (t, e) in (1..).zip(expected) {
        assert!((lr.at(t) - e).abs() <= 1e-15 * e, "step {t}: {:e}", lr.at(t));
    }
}

/// Fault kind C06: the table in the module header, indexed by optimizer step.
#[test]
fn documented_table() {
    let lr = LearningRate::new(1.0, LrSchedule::Cosine, Warmup::Steps(4), 0.1, 20);
    for (t, expected) in [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0), (12, 0.55), (20, 0.1), (21, 0.1), (1000, 0.1)] {
        close(lr.at(t), expected);
    }
    for (t, expected) in [(5, 0.9914), (8, 0.8682), (16, 0.2318), (19, 0.1086)] {
        assert!((lr.at(t) - expected).abs() < 5e-5, "step {t}: {}", lr.at(t));
    }
}

#[test]
fn never_zero_at_the_start_and_never_rising_after_the_warm_up() {
    for schedule in [LrSchedule::Constant, LrSchedule::Linear, LrSchedule::Cosine] {
        for warmup in 0..=23 {
            let lr = LearningRate::new(3e-4, schedule, Warmup::Steps(warmup), 0.0, 20);
            assert!(lr.at(1) > 0.0);
            let w = warmup.min(20);
            assert!((1..w).all(|t| lr.at(t) < lr.at(t + 1)));
            assert!((w.max(1)..60).all(|t| lr.at(t) >= lr.at(t + 1)), "{schedule:?} {warmup}");
            if w > 0 {
                close(lr.at(w), 3e-4);
            }
        }
    }
}

#[test]
fn without_warm_up_the_decay_begins_at_once() {
    let lr = LearningRate::new(2.0, LrSchedule::Linear, Warmup::Steps(0), 0.5, 4);
    for (t, expected) in [(1, 1.75), (2, 1.5), (3, 1.25), (4, 1.0), (5, 1.0)] {
        close(lr.at(t), expected);
    }
}

#[test]
fn warm_up_as_long_as_the_run_is_cut_to_it() {
    for warmup in [Warmup::Steps(10), Warmup::Steps(11), Warmup::Steps(u64::MAX), Warmup::Percent(100.0)] {
        let lr = LearningRate::new(1.0, LrSchedule::Cosine, warmup, 0.1, 10);
        assert_eq!(lr.warmup_steps, 10);
        close(lr.at(1), 0.1);
        close(lr.at(10), 1.0);
        close(lr.at(11), 0.1);
    }
}

#[test]
fn percent_is_of_the_total_and_rounded_up() {
    let steps = |percent, total| {
        LearningRate::new(1.0, LrSchedule::Constant, Warmup::Percent(percent), 0.1, total).warmup_steps
    };
    assert_eq!(steps(10.0, 20), 2);
    assert_eq!(steps(10.0, 21), 3);
    assert_eq!(steps(0.0, 21), 0);
    assert_eq!(steps(3.0, 10), 1);
    // 0.07 * 10,000 is a little more than 700 in binary.
    assert_eq!(steps(7.0, 10_000), 700);
    assert_eq!(steps(0.07, 1_000_000), 700);
}

/// A resume asks for one step after the other; the rates are those of the run in one piece, whatever came before.
#[test]
fn rates_depend_on_the_step_alone() {
    let lr = LearningRate::new(1e-3, LrSchedule::Cosine, Warmup::Steps(4), 0.1, 20);
    let whole: Vec<f64> = (1..=20).map(|t| lr.at(t)).collect();
    let again = LearningRate::new(1e-3, LrSchedule::Cosine, Warmup::Steps(4), 0.1, 20);
    assert_eq!(whole[10..], (11..=20).map(|t| again.at(t)).collect::<Vec<_>>());
}

#[test]
fn another_total_is_another_schedule_unless_the_rate_is_constant() {
    let make = |schedule, total| LearningRate::new(1e-3, schedule, Warmup::Steps(4), 0.1, total);
    assert!(!make(LrSchedule::Cosine, 20).same_rates(&make(LrSchedule::Cosine, 40)));
    assert!(!make(LrSchedule::Linear, 20).same_rates(&make(LrSchedule::Linear, 40)));
    assert!(make(LrSchedule::Cosine, 20).same_rates(&make(LrSchedule::Cosine, 20)));
    assert!(make(LrSchedule::Constant, 20).same_rates(&make(LrSchedule::Constant, 40)));
    let percent = |total| LearningRate::new(1e-3, LrSchedule::Constant, Warmup::Percent(10.0), 0.1, total);
    assert!(!percent(20).same_rates(&percent(40)));
}
