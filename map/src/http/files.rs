//! The page's files, as `build.rs` found them.

/// A file of the page: its path and content.
type File = (&'static str, &'static [u8]);

include!(concat!(env!("OUT_DIR"), "/page.rs"));

pub(super) const MISSING: &str =
    "this milepost-map was built without its page: run `make page`, and build it again";

/// Why the page cannot be shown. A debug build may lack it: tests of the API build without Node.
pub(super) fn trouble() -> Option<String> {
    (FILES.is_empty() && !cfg!(debug_assertions)).then(|| format!("page: {MISSING}"))
}
