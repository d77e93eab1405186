//! A case that fails, made as short as it can be.

/// The shortest part of a list that still fails, as far as leaving things out leads there: by halves, by quarters, at last one by
/// one, until none can be spared.
pub(crate) fn shortest<T: Clone>(all: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let (mut kept, mut size) = (all, usize::MAX);
    loop {
        size = size.min(kept.len()).div_ceil(2).max(1);
        let (mut at, before) = (0, kept.len());
        while at < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(at..kept.len().min(at + size));
            if fails(&fewer) {
                kept = fewer;
            } else {
                at += size;
            }
        }
        if size == 1 && kept.len() == before {
            return kept;
        }
    }
}

/// Three of a hundred matter, and only together.
#[test]
fn the_shortest_is_found() {
    let mut tried = 0;
    let found = shortest((0..100).collect(), |some: &[i32]| {
        tried += 1;
        [17, 18, 80].iter().all(|number| some.contains(number))
    });
    assert_eq!(found, [17, 18, 80]);
    assert!(tried < 100, "{tried} tries");
}
