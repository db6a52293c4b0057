//! Tiles and queues.

use super::*;

#[test]
fn tiles_cover_the_vocabulary_and_none_has_one_row() {
    for vocab in [2, 3, 64, 65, 128, 129, 4_096, 4_097, 8_193, 49_152, 49_153, 151_936, 128_257] {
        for hidden in [8, 576, 4_096, 16_384] {
            let tiles = Tiles::new(vocab, hidden);
            let mut next = 0;
            for tile in 0..tiles.count {
                let range = tiles.range(tile);
                assert_eq!(range.start, next);
                assert!(range.len() > 1, "{vocab} {hidden}");
                next = range.end;
                assert_eq!(tiles.elements_to(tile), next * hidden);
                assert!(tiles.elements(tile) <= tiles.elements_max());
            }
            assert_eq!(next, vocab);
        }
    }
}

#[test]
fn tiles_on_a_gpu_begin_at_whole_lines_and_cover_the_vocabulary() {
    for (vocab, hidden) in [(2, 8), (300, 64), (32_768, 4_096), (151_936, 3_584), (152_064, 3_584), (256_000, 12_288)] {
        let tiles = Tiles::on_gpu(vocab, hidden);
        assert_eq!(tiles.rows % GPU_ROWS, 0);
        assert!(tiles.elements_max() <= GPU_ELEMENTS_MAX + GPU_ROWS * hidden, "{vocab} {hidden}");
        assert!((0..tiles.count).all(|tile| !tiles.range(tile).is_empty()), "{vocab} {hidden}");
        assert_eq!(tiles.elements_to(tiles.count - 1), vocab * hidden);
    }
}

#[test]
fn a_stream_gives_each_tile_when_its_last_element_arrived() {
    let tiles = Tiles::with_rows(10, 3, 4);
    assert_eq!((tiles.rows, tiles.count), (4, 3));
    let mut stream = tiles.stream(5);
    assert_eq!(stream.complete(16), 0..0);
    assert_eq!(stream.complete(17), 0..1);
    assert_eq!(stream.complete(35), 1..3);
    assert_eq!(stream.complete(35), 3..3);
}

#[test]
fn a_queue_keeps_order() {
    let mut buffer = [0.0; 8];
    let mut queue = Queue::default();
    queue.room(&mut buffer, 3).copy_from_slice(&[1.0, 2.0, 3.0]);
    queue.push(3);
    queue.room(&mut buffer, 2).copy_from_slice(&[4.0, 5.0]);
    queue.push(2);
    queue.drop_front(&mut buffer, 4);
    queue.room(&mut buffer, 1)[0] = 6.0;
    queue.push(1);
    assert_eq!((&buffer[..2], queue.filled()), (&[5.0, 6.0][..], 2));
}
