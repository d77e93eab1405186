//! Shrinks failing cases.

/// Removes parts of a list while it still fails: halves, then quarters, finally single items.
pub(crate) fn shrink_failing<T: Clone>(items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let (mut remaining, mut size) = (items, usize::MAX);
    loop {
        size = size.min(remaining.len()).div_ceil(2).max(1);
        let (mut start, before) = (0, remaining.len());
        while start < remaining.len() {
            let mut fewer = remaining.clone();
            fewer.drain(start..remaining.len().min(start + size));
            if fails(&fewer) {
                remaining = fewer;
            } else {
                start += size;
            }
        }
        if size == 1 && remaining.len() == before {
            return remaining;
        }
    }
}

#[test]
fn shrink_finds_minimal_failing_subset() {
    let mut attempts = 0;
    let found = shrink_failing((0..100).collect(), |subset: &[i32]| {
        attempts += 1;
        [17, 18, 80].iter().all(|number| subset.contains(number))
    });
    assert_eq!(found, [17, 18, 80]);
    assert!(attempts < 100, "{attempts} tries");
}
