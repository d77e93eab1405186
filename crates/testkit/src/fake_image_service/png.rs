//! Writes a PNG without the library under test: gray noise, uncompressed.

/// Returns a square PNG with `side` pixels per side.
pub fn gray_noise_png(side: u16) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let wide = u32::from(side).to_be_bytes();
    // 8-bit grayscale, not interlaced.
    write_png_chunk(&mut file, *b"IHDR", &[wide.as_slice(), &wide, &[8, 0, 0, 0, 0]].concat());
    let mut rows = Vec::new();
    let mut gray = 7u32;
    for position in 0..u32::from(side) * (u32::from(side) + 1) {
        gray = gray.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Each row starts with its filter type: none.
        let is_row_start = position % (u32::from(side) + 1) == 0;
        rows.push(if is_row_start { 0 } else { gray.to_be_bytes()[0] });
    }
    let mut packed = vec![0x78, 0x01];
    let blocks = rows.chunks(0xffff).count();
    for (index, block) in rows.chunks(0xffff).enumerate() {
        packed.push(u8::from(index + 1 == blocks));
        let length = u16::try_from(block.len()).expect("a stored block fits");
        packed.extend(length.to_le_bytes());
        packed.extend((!length).to_le_bytes());
        packed.extend(block);
    }
    let (mut low, mut high) = (1u32, 0u32);
    for byte in &rows {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    packed.extend(((high << 16) | low).to_be_bytes());
    write_png_chunk(&mut file, *b"IDAT", &packed);
    write_png_chunk(&mut file, *b"IEND", &[]);
    file
}

fn write_png_chunk(file: &mut Vec<u8>, name: [u8; 4], body: &[u8]) {
    file.extend(u32::try_from(body.len()).expect("small").to_be_bytes());
    file.extend(name);
    file.extend(body);
    let mut sum = u32::MAX;
    for byte in name.iter().chain(body) {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xEDB8_8320 } else { sum >> 1 };
        }
    }
    file.extend((!sum).to_be_bytes());
}
