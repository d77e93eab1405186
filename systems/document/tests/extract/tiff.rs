//! Builds TIFF test images.

/// A white page.
pub(crate) struct TiffPage {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// RGB with `PackBits` compression, about 60 times smaller than its pixels; otherwise uncompressed gray.
    pub(crate) is_packed: bool,
}

const DIRECTORY_ENTRIES: u32 = 9;
const DIRECTORY_BYTES: u32 = 2 + DIRECTORY_ENTRIES * 12 + 4;

/// Encodes the pages. The directories come first, so truncating the end damages the last page.
pub(crate) fn encode_tiff(pages: &[TiffPage], is_big_endian: bool) -> Vec<u8> {
    let short = |number: u16| if is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
    let long = |number: u32| if is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
    let mut file = if is_big_endian { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
    file.extend(long(8));
    let (count, mut strips) = (u32::try_from(pages.len()).expect("few"), Vec::new());
    for (number, page) in (1..).zip(pages) {
        let strip = page.strip();
        let strip_offset = 8 + count * DIRECTORY_BYTES + u32::try_from(strips.len()).expect("small");
        let (compression, photometric, samples) = if page.is_packed { (32_773, 2, 3) } else { (1, 1, 1) };
        // Width, height, bits, compression, color model, strip offset, samples, rows per strip, strip bytes.
        let size = u32::try_from(strip.len()).expect("small");
        let entries = [
            (256, 4, page.width),
            (257, 4, page.height),
            (258, 3, 8),
            (259, 3, compression),
            (262, 3, photometric),
            (273, 4, strip_offset),
            (277, 3, samples),
            (278, 4, page.height),
            (279, 4, size),
        ];
        file.extend(short(u16::try_from(DIRECTORY_ENTRIES).expect("few")));
        for (tag, field_type, value) in entries {
            file.extend(short(tag));
            file.extend(short(field_type));
            file.extend(long(1));
            if field_type == 3 {
                file.extend(short(u16::try_from(value).expect("a valid length")));
                file.extend([0, 0]);
            } else {
                file.extend(long(value));
            }
        }
        file.extend(long(if number == count { 0 } else { 8 + number * DIRECTORY_BYTES }));
        strips.extend(strip);
    }
    file.extend(strips);
    file
}

impl TiffPage {
    fn strip(&self) -> Vec<u8> {
        if !self.is_packed {
            return vec![0xff; usize::try_from(self.width * self.height).expect("small")];
        }
        // Runs of 128, then the rest of the row.
        let row = self.width * 3;
        let rest = u8::try_from(row % 128).expect("less than a byte");
        let mut packed = [0x81, 0xff].repeat(usize::try_from(row / 128).expect("small"));
        if rest > 0 {
            packed.extend([(1_u8.wrapping_sub(rest)), 0xff]);
        }
        packed.repeat(usize::try_from(self.height).expect("small"))
    }
}
