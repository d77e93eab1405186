//! How a picture is called in the private bucket. The name says whose work it is: that of one attempt at one job. No other attempt writes
//! under it, so a worker that comes back from the dead cannot harm a picture that was committed.

use onceward_core::record::FencingToken;
use onceward_core::value::RecordId;

/// Where pictures lie.
pub(crate) const ORIGINALS_FOLDER: &str = "originals";

/// Attempts whose leavings are looked for. No job has as many.
pub(crate) const MAX_CLEANED_ATTEMPTS: usize = 16;

/// What providers draw, and how such a file ends.
const MEDIA_TYPES: [(&str, &str); 3] = [("image/png", "png"), ("image/jpeg", "jpg"), ("image/webp", "webp")];

/// IMG-3: where an attempt's picture goes; `None` for a kind that is no picture's.
pub(crate) fn object_name(job: RecordId, token: FencingToken, media_type: &str) -> Option<String> {
    let (_, extension) = MEDIA_TYPES.iter().find(|(known, _)| *known == media_type)?;
    Some(format!("originals/{job}-{}.{extension}", token.0))
}

/// All that an attempt may have left.
pub(crate) fn object_names(job: RecordId, token: FencingToken) -> impl Iterator<Item = String> {
    MEDIA_TYPES.iter().map(move |(_, ending)| format!("originals/{job}-{}.{ending}", token.0))
}

/// The job whose picture this is, or would be: a name begins with its job's id, whoever gave it.
pub(crate) fn parse_job_id(name: &str) -> Option<RecordId> {
    let name = name.strip_prefix(ORIGINALS_FOLDER)?.strip_prefix('/')?;
    name.get(..36)?.parse().ok().map(RecordId)
}

/// The kind of a picture of this name.
pub(crate) fn media_type(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    MEDIA_TYPES.iter().find(|(_, known)| *known == extension).map_or("application/octet-stream", |(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IMG-3: no two attempts have the same name for theirs.
    #[test]
    fn object_name_contains_job_and_token() {
        let job = RecordId("01936f0e-0000-7000-8000-000000000001".parse().unwrap());
        let name = object_name(job, FencingToken(2), "image/jpeg").unwrap();
        assert_eq!(name, "originals/01936f0e-0000-7000-8000-000000000001-2.jpg");
        assert_eq!(media_type(&name), "image/jpeg");
        assert!(object_names(job, FencingToken(2)).any(|one| one == name));
        assert_eq!(super::object_name(job, FencingToken(1), "text/html"), None);
        assert_eq!(media_type("originals/x.html"), "application/octet-stream");
        assert_eq!(super::parse_job_id(&name), Some(job));
        for other_name in ["originals/x.png", "other/01936f0e-0000-7000-8000-000000000001.png", "originals"] {
            assert_eq!(super::parse_job_id(other_name), None, "{other_name}");
        }
    }
}
