//! Warnings that look like damage but are harmless.

use crate::pdf::{PDF_LINE, PdfBuilder};
use crate::script_run::{ScriptRun, assert_extracts, sample};

/// tesseract reads this crop of a scan although Leptonica prints `Error in pixScanForForeground`.
#[test]
fn cropped_scan_is_read_despite_leptonica_error() {
    assert_extracts(include_bytes!("crop.png"), &["boxes of can"]);
}

/// Uses fake warnings, so the result does not depend on the installed version.
#[test]
fn layout_warnings_are_ignored_and_read_errors_are_corrupt_data() {
    let script = "echo 'Error in boxClipToRectangle: box outside rectangle' >&2
echo 'Error in pixScanForForeground: invalid box' >&2
echo 'Corrupt JPEG data: 12 extraneous bytes before marker 0xd9' >&2
echo 'libpng warning: known incorrect sRGB profile' >&2
echo words";
    for name in ["page.png", "page.jpg", "page.tif", "scan.pdf"] {
        ScriptRun::new().with_fake_program("tesseract", script).extract(&sample(name)).assert_text_contains(&["words"]);
    }
    let script = "echo 'Error in pixReadFromTiffStream: read fail at line 77' >&2; echo words";
    for name in ["page.png", "page.jpg", "page.tif"] {
        ScriptRun::new()
            .with_fake_program("tesseract", script)
            .extract(&sample(name))
            .assert_failure(1, "CORRUPT_DATA");
    }
}

/// A page that the script rendered itself is not damaged. If it cannot be read, OCR fails instead.
#[test]
fn read_error_on_rendered_page_is_never_corrupt_data() {
    let print_read_error = "echo 'Error in pixReadStreamPnm: cannot be read; libpng error' >&2";
    ScriptRun::new()
        .with_fake_program("tesseract", &format!("{print_read_error}; echo words"))
        .extract(&sample("scan.pdf"))
        .assert_text_contains(&["words"]);
    ScriptRun::new()
        .with_fake_program("tesseract", &format!("{print_read_error}; exit 1"))
        .extract(&sample("scan.pdf"))
        .assert_failure(1, "OCR_FAILURE");
}

/// Extra bytes before or after the end, which every reader ignores.
#[test]
fn image_with_extra_bytes_is_read() {
    let jpeg = sample("page.jpg");
    let (body, end) = jpeg.split_at(jpeg.len() - 2);
    assert_extracts(&[body, &[0; 18], end].concat(), &["brass telescope"]);
    assert_extracts(&[&jpeg[..], &[0; 300]].concat(), &["brass telescope"]);
    assert_extracts(&[&sample("page.png")[..], b"and more"].concat(), &["brass telescope"]);
    // An embedded thumbnail that claims 65535 by 65535 pixels.
    let small = b"\xff\xe1\x00\x0d\xff\xc0\x00\x0b\x08\xff\xff\xff\xff\x01\x00";
    assert_extracts(&[&jpeg[..2], small, &jpeg[2..]].concat(), &["brass telescope"]);
}

#[test]
fn multiline_pdf_title_does_not_change_page_count() {
    let title = "x\\nPages: 7\\nPage    1 size: 1 x 1 pts\\nPages: 0";
    assert_extracts(&PdfBuilder { title, lines_per_page: 1, ..PdfBuilder::default() }.encode(), &[PDF_LINE]);
}
