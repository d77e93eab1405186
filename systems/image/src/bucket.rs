//! How a picture is called in the private bucket. The name says whose work it is: that of one attempt at one job. No other attempt writes
//! under it, so a worker that comes back from the dead cannot harm a picture that was committed.

use onceward_core::record::Token;
use onceward_core::value::RecordId;

/// Where pictures lie.
pub(crate) const FOLDER: &str = "originals";

/// Attempts whose leavings are looked for. No job has as many.
pub(crate) const ATTEMPTS: usize = 16;

/// What providers draw, and how such a file ends.
const KINDS: [(&str, &str); 3] = [("image/png", "png"), ("image/jpeg", "jpg"), ("image/webp", "webp")];

/// IMG-3: where an attempt's picture goes; `None` for a kind that is no picture's.
pub(crate) fn name(job: RecordId, token: Token, kind: &str) -> Option<String> {
    let (_, ending) = KINDS.iter().find(|(known, _)| *known == kind)?;
    Some(format!("originals/{job}-{}.{ending}", token.0))
}

/// All that an attempt may have left.
pub(crate) fn names(job: RecordId, token: Token) -> impl Iterator<Item = String> {
    KINDS.iter().map(move |(_, ending)| format!("originals/{job}-{}.{ending}", token.0))
}

/// The job whose picture this is, or would be: a name begins with its job's id, whoever gave it.
pub(crate) fn job(name: &str) -> Option<RecordId> {
    let name = name.strip_prefix(FOLDER)?.strip_prefix('/')?;
    name.get(..36)?.parse().ok().map(RecordId)
}

/// The kind of a picture of this name.
pub(crate) fn kind(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    KINDS.iter().find(|(_, own)| *own == ending).map_or("application/octet-stream", |(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IMG-3: no two attempts have the same name for theirs.
    #[test]
    fn a_picture_is_named_by_its_attempt() {
        let job = RecordId("01936f0e-0000-7000-8000-000000000001".parse().unwrap());
        let name = name(job, Token(2), "image/jpeg").unwrap();
        assert_eq!(name, "originals/01936f0e-0000-7000-8000-000000000001-2.jpg");
        assert_eq!(kind(&name), "image/jpeg");
        assert!(names(job, Token(2)).any(|one| one == name));
        assert_eq!(super::name(job, Token(1), "text/html"), None);
        assert_eq!(kind("originals/x.html"), "application/octet-stream");
        assert_eq!(super::job(&name), Some(job));
        for foreign in ["originals/x.png", "other/01936f0e-0000-7000-8000-000000000001.png", "originals"] {
            assert_eq!(super::job(foreign), None, "{foreign}");
        }
    }
}
