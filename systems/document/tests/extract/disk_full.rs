//! A full temporary folder is a retryable failure: the script neither returns partial text nor blames the document.

use crate::pdf::{PDF_LINE, PdfBuilder};
use crate::script_run::{ScriptRun, sample};

/// The disk fills up at each stage: while the document is read, during a page's text, and in the collected text.
#[test]
fn full_disk_is_retryable_and_never_partial_text() {
    let document = PdfBuilder { pages: 6, lines_per_page: 60, ..PdfBuilder::default() }.encode();
    let blocks = |bytes: usize| u32::try_from(bytes / 512).expect("small");
    let whole = ScriptRun::new().extract(&document);
    whole.assert_text_contains(&[PDF_LINE]);
    assert_eq!(whole.stdout_text.matches(PDF_LINE).count(), 6 * 60);
    assert!(whole.stdout_text.len() > 3 * document.len(), "the text is what is large");
    // While reading the document, at its end, and in each page.
    for share in 0..6 {
        let max_blocks = blocks(document.len() - 1).max(blocks(whole.stdout_text.len() * share / 6))
            / if share == 0 { 2 } else { 1 };
        ScriptRun::new().with_max_file_blocks(max_blocks).extract(&document).assert_failure(75, "SYSTEM_TRANSIENT");
    }
    let enough = ScriptRun::new().with_max_file_blocks(blocks(whole.stdout_text.len()) + 1).extract(&document);
    assert_eq!((enough.exit_code, enough.stdout_text), (Some(0), whole.stdout_text));
}

/// `pdftotext` itself does not report that the disk cut off its output.
#[test]
fn full_disk_during_pdftotext_is_retryable() {
    let run = || ScriptRun::new().with_fake_program("pdftotext", "head -c 20000 /dev/zero | tr '\\0' a");
    run().with_max_file_blocks(20).extract(&sample("letter.pdf")).assert_failure(75, "SYSTEM_TRANSIENT");
    assert_eq!(run().with_max_file_blocks(100).extract(&sample("letter.pdf")).stdout_text.len(), 40_000);
}

#[test]
fn full_disk_during_rendering_or_ocr_is_retryable() {
    let scan = sample("scan.pdf");
    let max_blocks = u32::try_from(scan.len() / 512).expect("small") + 1;
    ScriptRun::new().with_max_file_blocks(max_blocks).extract(&scan).assert_failure(75, "SYSTEM_TRANSIENT");
    let run = ScriptRun::new().with_fake_program("tesseract", "head -c 20000 /dev/zero | tr '\\0' a");
    run.with_max_file_blocks(20).extract(&sample("page.tif")).assert_failure(75, "SYSTEM_TRANSIENT");
}

/// The script classifies failures by the program's output, which is incomplete if the disk is full.
#[test]
fn full_disk_during_pdfinfo_is_retryable() {
    let run = || {
        ScriptRun::new()
            .with_fake_program("pdfinfo", "head -c 20000 /dev/zero >&2; echo 'Incorrect password' >&2; exit 1")
    };
    run().with_max_file_blocks(20).extract(&sample("letter.pdf")).assert_failure(75, "SYSTEM_TRANSIENT");
    run().extract(&sample("letter.pdf")).assert_failure(1, "UNSUPPORTED_FORMAT");
}

#[test]
fn missing_temp_folder_is_retryable() {
    let run = ScriptRun::new();
    let nowhere = run.sibling_path("nowhere").display().to_string();
    run.with_env("TMPDIR", &nowhere).extract(&sample("letter.pdf")).assert_failure(75, "SYSTEM_TRANSIENT");
}

#[test]
fn broken_pipe_while_reading_document_is_retryable() {
    let run = ScriptRun::new().with_fake_program("tr", "cat >/dev/null; exit 1");
    let mut document = sample("letter.pdf");
    // Other uses of `tr` concern only images, which the script detects by their first bytes.
    document.splice(0..0, *b"\n");
    run.extract(&document).assert_failure(75, "SYSTEM_TRANSIENT");
}
