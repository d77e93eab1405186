//! The artist's pictures as files: `cargo run -p onceward-system-image --example artist -- FOLDER SIDE PROMPT…`

use std::path::Path;
use std::time::Instant;

use onceward_system_image::provider::local::png;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [folder, side, prompts @ ..] = given.as_slice() else {
        return Err("say a folder, a side in pixels and a prompt or more".into());
    };
    let side: u32 = side.parse()?;
    for prompt in prompts {
        let start = Instant::now();
        let file = png(prompt, side)?;
        let took = start.elapsed();
        let plain: String = prompt.chars().map(|letter| if letter.is_alphanumeric() { letter } else { '-' }).collect();
        let path = Path::new(folder).join(format!("{plain}.png"));
        std::fs::write(&path, &file)?;
        println!("{}: {} bytes, {took:.0?}", path.display(), file.len());
    }
    Ok(())
}
