use super::*;
use std::collections::BTreeSet;

#[test]
fn text_is_a_function_of_seed_and_length() {
    let text = default_text(7, 5000);
    assert_eq!(text.len(), 5000);
    assert!(text.is_ascii());
    assert_eq!(text, default_text(7, 5000));
    assert_eq!(text[..1000], default_text(7, 1000));
    assert_ne!(text, default_text(8, 5000));
    assert_eq!(default_text(1, 0), "");
}

#[test]
fn few_words_and_one_sentence_a_line() {
    let text = default_text(1, 200_000);
    let end = text.rfind('\n').unwrap() + 1;
    let mut words = BTreeSet::new();
    for line in text[..end].lines() {
        let sentence = line.strip_suffix('.').unwrap();
        assert!(sentence.bytes().all(|b| b.is_ascii_lowercase() || b == b' '), "{line}");
        assert!(!sentence.contains("  ") && sentence == sentence.trim(), "{line}");
        words.extend(sentence.split(' '));
    }
    assert!((30..50).contains(&words.len()), "{} words", words.len());
}

/// Every sentence follows the rules that the header gives, also those that take looking back.
#[test]
fn sums_successions_and_echoes_are_true() {
    let number = |word: &str| NUMBERS.iter().position(|&n| n == word).unwrap();
    let text = default_text(2, 200_000);
    let mut seen = [0; 3];
    let end = text.rfind('\n').unwrap();
    for line in text[..end].lines() {
        let words: Vec<&str> = line.trim_end_matches('.').split(' ').collect();
        match words[..] {
            [a, "and", b, "make", c] => {
                assert_eq!(number(a) + number(b), number(c), "{line}");
                seen[0] += 1;
            }
            ["after", a, "comes", b] => {
                assert_eq!(number(a) + 1, number(b), "{line}");
                seen[1] += 1;
            }
            ["if", ..] => {
                let (first, second) = line[3..].trim_end_matches('.').split_once(" then ").unwrap();
                assert_eq!(first, second);
                seen[2] += 1;
            }
            _ => {}
        }
    }
    assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
}

#[test]
fn verbs_agree_with_the_subject_before_them() {
    let text = default_text(3, 200_000);
    let all = || ALONE.iter().chain(&WITH_OBJECT);
    let mut seen = 0;
    // With a relative clause an object may stand before the verb of the outer subject, which may be of the other
    // number.
    for line in text.lines().filter(|l| !l.contains(" that ")) {
        let words: Vec<&str> = line.trim_end_matches('.').split(' ').collect();
        for pair in words.windows(2) {
            let singular = NOUNS.contains(&pair[0]);
            let plural = NOUNS.iter().any(|n| pair[0] == format!("{n}s"));
            assert!(!(singular && all().any(|&v| v == pair[1])), "{line}");
            assert!(!(plural && all().any(|v| pair[1] == format!("{v}s"))), "{line}");
            seen += usize::from(singular || plural);
        }
    }
    assert!(seen > 1000, "{seen}");
}
