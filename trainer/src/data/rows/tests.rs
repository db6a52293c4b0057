use super::*;

const N: u32 = NO_TARGET;

#[test]
fn a_row_of_one_document_has_a_target_less_than_ids() {
    let mut b = Builder::new(4, 1);
    b.push(&[5, 6, 7, 8], &[]);
    let m = b.finish();
    assert_eq!(m.targets, [6, 7, 8, N]);
    assert_eq!(m.positions, [0, 1, 2, 3]);
    assert_eq!(m.document, [0; 4]);
    assert_eq!(m.target_count(), 3);
    let mut b = Builder::new(4, 1);
    b.push(&[5, 6, 7, 8], &[0]);
    assert_eq!(b.finish(), m);
}

#[test]
fn nothing_crosses_a_document_start() {
    let mut b = Builder::new(6, 2);
    b.push(&[1, 2, 3, 4, 5, 6], &[2, 3]);
    b.push(&[7, 8, 9, 10, 11, 12], &[5]);
    let m = b.finish();
    assert_eq!((m.rows, m.seq), (2, 6));
    assert_eq!(m.ids, (1..=12).collect::<Vec<_>>());
    assert_eq!(m.targets, [2, N, N, 5, 6, N, 8, 9, 10, 11, N, N]);
    assert_eq!(m.positions, [0, 1, 0, 0, 1, 2, 0, 1, 2, 3, 4, 0]);
    assert_eq!(m.document, [0, 0, 2, 3, 3, 3, 0, 0, 0, 0, 0, 5]);
}

#[test]
fn starts_are_those_inside_the_row() {
    let starts = [0, 3, 8, 9, 16];
    assert_eq!(starts_within(&starts, 0, 8), [3]);
    assert_eq!(starts_within(&starts, 8, 8), [1]);
    assert_eq!(starts_within(&starts, 16, 8), [0; 0]);
    assert_eq!(starts_within(&starts, 4, 4), [0; 0]);
    assert_eq!(starts_within(&starts, 4, 5), [4]);
}
