//! Builds PDF test documents.

/// A PDF with identical pages.
pub(crate) struct PdfBuilder<'a> {
    pub(crate) title: &'a str,
    pub(crate) pages: usize,
    /// Entries of the page dictionary that set its size, in points.
    pub(crate) page_boxes: &'a str,
    pub(crate) lines_per_page: usize,
}

impl Default for PdfBuilder<'_> {
    fn default() -> Self {
        Self { title: "", pages: 1, page_boxes: "/MediaBox [0 0 612 792]", lines_per_page: 0 }
    }
}

/// Text of each line.
pub(crate) const PDF_LINE: &str = "The parcel weighs 42 kilograms, and so does the other one.";

impl PdfBuilder<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let kids: Vec<_> = (0..self.pages).map(|page| format!("{} 0 R", page + 6)).collect();
        let text = format!("({PDF_LINE}) ' ").repeat(self.lines_per_page);
        let content = format!("BT /F 10 Tf 12 TL 20 780 Td {text} ET");
        let mut objects = vec![
            "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
            format!("<< /Type /Pages /Count {} /Kids [{}] >>", self.pages, kids.join(" ")),
            format!("<< /Title ({}) >>", self.title),
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
            format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()),
        ];
        let page = format!(
            "<< /Type /Page /Parent 2 0 R {} /Contents 5 0 R /Resources << /Font << /F 4 0 R >> >> >>",
            self.page_boxes
        );
        objects.extend((0..self.pages).map(|_| page.clone()));
        let (mut file, mut xref_entries) = (b"%PDF-1.4\n".to_vec(), Vec::new());
        for (number, object) in (1..).zip(&objects) {
            xref_entries.push(format!("{:010} 00000 n \n", file.len()));
            file.extend(format!("{number} 0 obj\n{object}\nendobj\n").bytes());
        }
        let (size, start, xref_table) = (objects.len() + 1, file.len(), xref_entries.concat());
        file.extend(format!("xref\n0 {size}\n0000000000 65535 f \n{xref_table}").bytes());
        file.extend(format!("trailer\n<< /Size {size} /Root 1 0 R /Info 3 0 R >>\n").bytes());
        file.extend(format!("startxref\n{start}\n%%EOF\n").bytes());
        file
    }
}
