//! Names that systems give to what they keep here.

use super::ObjectError;

/// Bytes of a whole name: with a prefix before it, still fewer than any store takes.
const LENGTH: usize = 512;

/// Bytes of a segment: no file system takes more than 255.
const SEGMENT: usize = 200;

/// A relative path of plain segments, `originals/0199….png` say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(String);

impl Name {
    pub(super) fn new(name: &str) -> Result<Self, ObjectError> {
        let is_good = name.len() <= LENGTH && name.split('/').all(is_plain);
        if is_good { Ok(Self(name.to_owned())) } else { Err(ObjectError::BadName(name.to_owned())) }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Nothing that a file system, a URL or a shell takes for more than a letter; and nothing that leads elsewhere.
fn is_plain(segment: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=SEGMENT).contains(&segment.len()) && !segment.starts_with('.') && segment.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_path_of_plain_segments() {
        for good in ["a", "originals/0199-a_b.png", "a/b/c/D.tar.gz", &("a/".repeat(255) + "a"), &"a".repeat(200)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        let bad =
            ["", "/", "/a", "a/", "a//b", "..", "a/../b", ".", "a/.", ".hidden", "a b", "a\\b", "ä", "a\0", "a%2e"];
        let (long, wide) = ("a/".repeat(256) + "a", "a".repeat(201));
        for bad in bad.into_iter().chain([long.as_str(), wide.as_str()]) {
            assert_eq!(Name::new(bad).map_err(|error| error.code()), Err("bad_object_name"), "{bad}");
        }
    }
}
