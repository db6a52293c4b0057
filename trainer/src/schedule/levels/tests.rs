//! The front against all assignments of small cases, and what holds of the best point whatever the numbers are.

use super::*;
use mt_engine::DeviceId;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

fn below(rng: &mut ChaCha8Rng, end: u64) -> u64 {
    u64::from(rng.next_u32()) % end
}

/// Up to five items of one to three choices; small numbers, so that sums collide and choices beat each other.
fn random_items(rng: &mut ChaCha8Rng) -> Vec<Vec<Choice>> {
    let choice = |rng: &mut ChaCha8Rng| Choice { bytes: below(rng, 9), ns: below(rng, 9) };
    (0..below(rng, 6)).map(|_| (0..1 + below(rng, 3)).map(|_| choice(rng)).collect()).collect()
}

fn room(rng: &mut ChaCha8Rng) -> Room {
    let side = |rng: &mut ChaCha8Rng| Side {
        compute_s: below(rng, 20) as f64 * 1e-9,
        read_bytes: below(rng, 20),
        write_bytes: below(rng, 20),
        up_bytes: below(rng, 20),
        down_bytes: below(rng, 20),
        beside_s: below(rng, 20) as f64 * 1e-9,
    };
    let rate = |rng: &mut ChaCha8Rng| (1 + below(rng, 4)) as f64 * 1e9;
    let link = Profile {
        disk_read_bytes_per_s: rate(rng),
        disk_write_bytes_per_s: rate(rng),
        disk_mixed_bytes_per_s: rate(rng),
        ..Profile::default()
    };
    let device = LinkRates {
        upload_both_bytes_per_s: rate(rng),
        download_both_bytes_per_s: rate(rng),
        ..LinkRates::assumed(DeviceId(0))
    };
    let (vram_bytes, ram_bytes, forward, backward) = (below(rng, 10), below(rng, 30), side(rng), side(rng));
    let (link, device) = ((below(rng, 3) > 0).then_some(link), (below(rng, 2) > 0).then_some(device));
    Room { vram_bytes, ram_bytes, forward, backward, link, device }
}

/// Every assignment: one choice of each item.
fn assignments(items: &[Vec<Choice>]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for choices in items {
        let longer = |a: &Vec<usize>| (0..choices.len()).map(|c| [a.as_slice(), &[c]].concat()).collect::<Vec<_>>();
        all = all.iter().flat_map(longer).collect();
    }
    all
}

fn sum(items: &[Vec<Choice>], assignment: &[usize]) -> Choice {
    let chosen = items.iter().zip(assignment).map(|(choices, &choice)| choices[choice]);
    chosen.fold(Choice::default(), |sum, c| Choice { bytes: sum.bytes + c.bytes, ns: sum.ns + c.ns })
}

/// Least seconds of any assignment.
fn least(items: &[Vec<Choice>], seconds: impl Fn(Choice) -> Option<f64>) -> Option<f64> {
    assignments(items).iter().filter_map(|a| seconds(sum(items, a))).min_by(f64::total_cmp)
}

#[test]
fn the_best_point_is_the_best_of_all_assignments() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut found, mut impossible) = (0, 0);
    for _ in 0..3_000 {
        let (mut items, room) = (random_items(&mut rng), room(&mut rng));
        // The head is always there.
        items.push(vec![Choice { bytes: 0, ns: below(&mut rng, 9) }, Choice { bytes: below(&mut rng, 9), ns: 0 }]);
        let front = Front::new(&items);
        for seconds in [Room::seconds, Room::seconds_together] {
            let best = front.best(|sum| seconds(&room, sum));
            let expected = least(&items, |sum| seconds(&room, sum));
            assert_eq!(
                best.as_ref().and_then(|best| seconds(&room, sum(&items, best))),
                expected,
                "{items:?} {room:?}"
            );
            if expected.is_some() {
                found += 1
            } else {
                impossible += 1
            }
            assert_eq!(best, Front::new(&items).best(|sum| seconds(&room, sum)));
        }
    }
    assert!(found > 1_000 && impossible > 100, "{found} {impossible}");
}

#[test]
fn the_front_has_every_sum_that_none_beats_and_no_other() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for _ in 0..500 {
        let mut items = random_items(&mut rng);
        items.push(vec![Choice { bytes: 1, ns: 1 }]);
        let all: Vec<Choice> = assignments(&items).iter().map(|a| sum(&items, a)).collect();
        let beats = |a: &Choice, b: &Choice| a.bytes <= b.bytes && a.ns <= b.ns && a != b;
        let mut expected: Vec<(u64, u64)> =
            all.iter().filter(|b| !all.iter().any(|a| beats(a, b))).map(|c| (c.bytes, c.ns)).collect();
        expected.sort_unstable();
        expected.dedup();
        let front = Front::new(&items);
        let found: Vec<(u64, u64)> = front.points().iter().map(|p| (p.sum.bytes, p.sum.ns)).collect();
        assert_eq!(found, expected);
        for (index, point) in front.points().iter().enumerate() {
            assert_eq!(sum(&items, &front.choices(index)), point.sum);
        }
    }
}

#[test]
fn more_ram_and_a_faster_link_are_never_slower() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for _ in 0..500 {
        let (mut items, room) = (random_items(&mut rng), room(&mut rng));
        items.push(vec![Choice { bytes: 0, ns: 5 }, Choice { bytes: 5, ns: 0 }]);
        let front = Front::new(&items);
        let best = |room: &Room, seconds: fn(&Room, Choice) -> Option<f64>| {
            let best = front.best(|sum| seconds(room, sum));
            best.map_or(f64::INFINITY, |best| seconds(room, sum(&items, &best)).unwrap())
        };
        for seconds in [Room::seconds, Room::seconds_together] {
            let mut last = best(&room, seconds);
            for ram_bytes in room.ram_bytes + 1..room.ram_bytes + 50 {
                let found = best(&Room { ram_bytes, ..room.clone() }, seconds);
                assert!(found <= last, "{ram_bytes}: {found} after {last}");
                last = found;
            }
            let faster = room.link.clone().map(|link| Profile {
                disk_read_bytes_per_s: 2.0 * link.disk_read_bytes_per_s,
                disk_write_bytes_per_s: 2.0 * link.disk_write_bytes_per_s,
                disk_mixed_bytes_per_s: 2.0 * link.disk_mixed_bytes_per_s,
                ..link
            });
            assert!(best(&Room { link: faster, ..room }, seconds) <= best(&room, seconds));
        }
    }
}

#[test]
fn what_the_link_moves_for_nothing_is_kept_and_what_it_waits_for_is_not() {
    // Two layers: keeping one takes 10 bytes and saves 8 ns.
    let items = vec![vec![Choice { bytes: 0, ns: 8 }, Choice { bytes: 10, ns: 0 }]; 2];
    let front = Front::new(&items);
    let link = Profile {
        disk_read_bytes_per_s: 1e9,
        disk_write_bytes_per_s: 1e9,
        disk_mixed_bytes_per_s: 1e9,
        ..Profile::default()
    };
    let idle = Side { compute_s: 100e-9, ..Side::default() };
    let busy = Side { compute_s: 100e-9, read_bytes: 60, write_bytes: 40, ..Side::default() };
    let kept = |room: Room| front.best(|sum| room.seconds(sum)).unwrap().into_iter().sum::<usize>();
    let room = Room { vram_bytes: 0, ram_bytes: 0, forward: idle, backward: idle, link: Some(link), device: None };
    assert_eq!(kept(room.clone()), 2);
    assert_eq!(kept(Room { forward: busy, ..room.clone() }), 0, "10 ns of writing for 8 ns of computation");
    assert_eq!(kept(Room { forward: busy, ram_bytes: 10, ..room.clone() }), 1);
    assert_eq!(kept(Room { link: None, ram_bytes: 19, ..room }), 1);
}
