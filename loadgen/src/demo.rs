//! later

use anyhow::Result;

/// demo
#[derive(Debug, clap::Args)]
pub struct Arguments {}

/// # Errors
/// none
pub fn run(_: &Arguments) -> Result<bool> {
    Ok(true)
}
