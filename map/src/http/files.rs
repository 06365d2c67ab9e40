//! The page's files, as `build.rs` found them.

/// A file of the page: its path and content.
type File = (&'static str, &'static [u8]);

include!(concat!(env!("OUT_DIR"), "/page.rs"));

pub(super) const MISSING: &str =
    "this milepost-map was built without its page: run `make page`, and build it again";

/// Returns why a release build cannot show the page. A debug build may lack the page, because tests
/// of the API build without Node.
pub(super) fn unready_reason() -> Option<String> {
    (FILES.is_empty() && !cfg!(debug_assertions)).then(|| format!("page: {MISSING}"))
}
