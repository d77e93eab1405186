//! Validates the names of named objects.

use super::ObjectError;

/// With a prefix, still below the limit of every store.
const MAX_NAME_BYTES: usize = 512;

/// File systems allow at most 255 bytes.
const MAX_SEGMENT_BYTES: usize = 200;

/// A relative path of plain segments, such as `originals/0199….png`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectName(String);

impl ObjectName {
    pub(super) fn new(name: &str) -> Result<Self, ObjectError> {
        let is_valid = name.len() <= MAX_NAME_BYTES && name.split('/').all(is_valid_segment);
        if is_valid { Ok(Self(name.to_owned())) } else { Err(ObjectError::InvalidObjectName(name.to_owned())) }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Allows no character that is special to a file system, a URL or a shell, and no path traversal.
fn is_valid_segment(segment: &str) -> bool {
    let is_allowed_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_SEGMENT_BYTES).contains(&segment.len())
        && !segment.starts_with('.')
        && segment.bytes().all(is_allowed_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_name_accepts_only_relative_paths_of_plain_segments() {
        for good in ["a", "originals/0199-a_b.png", "a/b/c/D.tar.gz", &("a/".repeat(255) + "a"), &"a".repeat(200)] {
            assert!(ObjectName::new(good).is_ok(), "{good}");
        }
        let bad =
            ["", "/", "/a", "a/", "a//b", "..", "a/../b", ".", "a/.", ".hidden", "a b", "a\\b", "ä", "a\0", "a%2e"];
        let (long, wide) = ("a/".repeat(256) + "a", "a".repeat(201));
        for bad in bad.into_iter().chain([long.as_str(), wide.as_str()]) {
            assert_eq!(ObjectName::new(bad).map_err(|error| error.code()), Err("invalid_object_name"), "{bad}");
        }
    }
}
