//! Embeds page/dist in the binary. If page/dist is missing, a developer's build has no page, and a
//! build with `MILEPOST_MAP_PAGE=required`, which releases and images set, fails.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=page/dist");
    println!("cargo:rerun-if-changed=build.rs");
    let root =
        Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("page/dist");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    println!("cargo:rerun-if-env-changed=MILEPOST_MAP_PAGE");
    let is_required =
        std::env::var_os("MILEPOST_MAP_PAGE").is_some_and(|value| value == "required");
    assert!(
        !is_required || root.join("index.html").is_file(),
        "map/page/dist has no index.html: run `make page`"
    );
    let mut code = format!("pub(super) static FILES: [File; {}] = [\n", files.len());
    for path in files {
        let name = path
            .strip_prefix(&root)
            .expect("collected below root")
            .to_string_lossy()
            .replace('\\', "/");
        writeln!(code, "    ({name:?}, include_bytes!({path:?})),")
            .expect("writing to a string does not fail");
    }
    code += "];\n";
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("page.rs"), code).expect("OUT_DIR is writable");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}
