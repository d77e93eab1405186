//! Detects the media type of an image from its first bytes and its completeness from its last bytes.

/// Returns the media type of a complete PNG, JPEG or WebP image.
///
/// Without a content length, an early close of the connection looks like the end of the file. But each of these formats
/// marks its own end.
pub(super) fn detect_complete_image(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return bytes.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82").then_some("image/png");
    }
    if bytes.starts_with(b"\xff\xd8\xff") {
        // Some encoders pad with zeros after the end marker.
        let end = bytes.iter().rposition(|byte| *byte != 0)? + 1;
        return bytes[..end].ends_with(b"\xff\xd9").then_some("image/jpeg");
    }
    if bytes.len() >= 12 && bytes.starts_with(b"RIFF") && bytes[8..12] == *b"WEBP" {
        let declared_bytes = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        return (bytes.len() as u64 >= u64::from(declared_bytes) + 8).then_some("image/webp");
    }
    None
}

/// Returns the media type that a `Content-Type` header names, if it is supported.
pub(super) fn parse_content_type(content_type: &str) -> Option<&'static str> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.as_str() {
        "image/png" => Some("image/png"),
        "image/jpeg" | "image/jpg" => Some("image/jpeg"),
        "image/webp" => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_image_is_not_detected() {
        let png = [b"\x89PNG\r\n\x1a\n".as_slice(), b"...", b"\0\0\0\0IEND\xae\x42\x60\x82"].concat();
        assert_eq!(detect_complete_image(&png), Some("image/png"));
        assert_eq!(detect_complete_image(&png[..png.len() - 1]), None);
        assert_eq!(detect_complete_image(b"\xff\xd8\xff\xe0...\xff\xd9\0\0"), Some("image/jpeg"));
        assert_eq!(detect_complete_image(b"\xff\xd8\xff\xe0..."), None);
        assert_eq!(detect_complete_image(b"RIFF\x06\0\0\0WEBP.."), Some("image/webp"));
        assert_eq!(detect_complete_image(b"RIFF\x07\0\0\0WEBP.."), None);
        for other in [b"".as_slice(), b"GIF89a", b"<html>", b"RIFF", b"\xff\xd8\xff"] {
            assert_eq!(detect_complete_image(other), None);
        }
    }

    #[test]
    fn content_type_parameters_and_aliases_are_accepted() {
        assert_eq!(parse_content_type("image/PNG; charset=binary"), Some("image/png"));
        assert_eq!(parse_content_type("image/jpg"), Some("image/jpeg"));
        for other in ["text/html", "image/svg+xml", "image/gif", "application/octet-stream", ""] {
            assert_eq!(parse_content_type(other), None, "{other}");
        }
    }
}
