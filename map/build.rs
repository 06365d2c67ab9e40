//! Puts page/dist into the binary, if it has been built: without it there is no page, and the rest works.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=page/dist");
    println!("cargo:rerun-if-changed=build.rs");
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("page/dist");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let mut code = format!("static FILES: [File; {}] = [\n", files.len());
    for path in files {
        let name = path.strip_prefix(&root).expect("it was found there").to_string_lossy().replace('\\', "/");
        writeln!(code, "    ({name:?}, include_bytes!({path:?})),").expect("a string takes everything");
    }
    code += "];\n";
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("page.rs"), code).expect("OUT_DIR can be written");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}
