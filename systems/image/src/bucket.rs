//! Object names of images in the private bucket. A name contains the job and the fencing token, so a worker that lost
//! its lease cannot overwrite a committed image.

use onceward_core::record::FencingToken;
use onceward_core::value::RecordId;

/// Folder of the images in the bucket.
pub(crate) const ORIGINALS_FOLDER: &str = "originals";

/// Maximum number of attempts of a job whose objects are deleted. More than the lifecycle allows.
pub(crate) const MAX_CLEANED_ATTEMPTS: usize = 16;

/// Media types of generated images and their file extensions.
const MEDIA_TYPES: [(&str, &str); 3] = [("image/png", "png"), ("image/jpeg", "jpg"), ("image/webp", "webp")];

/// IMG-3: Returns the object name of an attempt's image; `None` if `media_type` is unsupported.
pub(crate) fn object_name(job: RecordId, token: FencingToken, media_type: &str) -> Option<String> {
    let (_, extension) = MEDIA_TYPES.iter().find(|(known, _)| *known == media_type)?;
    Some(format!("originals/{job}-{}.{extension}", token.0))
}

/// Returns every object name that an attempt may have used.
pub(crate) fn object_names(job: RecordId, token: FencingToken) -> impl Iterator<Item = String> {
    MEDIA_TYPES.iter().map(move |(_, ending)| format!("originals/{job}-{}.{ending}", token.0))
}

/// Parses the job id at the start of an object name.
pub(crate) fn parse_job_id(name: &str) -> Option<RecordId> {
    let name = name.strip_prefix(ORIGINALS_FOLDER)?.strip_prefix('/')?;
    name.get(..36)?.parse().ok().map(RecordId)
}

/// Returns the media type of an object by its file extension.
pub(crate) fn media_type(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    MEDIA_TYPES.iter().find(|(_, known)| *known == extension).map_or("application/octet-stream", |(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IMG-3
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
