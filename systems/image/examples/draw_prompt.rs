//! Writes generated images to files: `cargo run -p onceward-system-image --example draw_prompt -- FOLDER SIDE PROMPT…`

use std::path::Path;
use std::time::Instant;

use onceward_system_image::provider::local::render_png;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, side, prompts @ ..] = args.as_slice() else {
        return Err("say a folder, a side in pixels and a prompt or more".into());
    };
    let side: u32 = side.parse()?;
    for prompt in prompts {
        let start = Instant::now();
        let file = render_png(prompt, side)?;
        let elapsed = start.elapsed();
        let file_stem: String =
            prompt.chars().map(|letter| if letter.is_alphanumeric() { letter } else { '-' }).collect();
        let path = Path::new(folder).join(format!("{file_stem}.png"));
        std::fs::write(&path, &file)?;
        println!("{}: {} bytes, {elapsed:.0?}", path.display(), file.len());
    }
    Ok(())
}
