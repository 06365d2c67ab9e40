//! Writes man pages and shell completions into a folder: `release-docs FOLDER`. They are made from
//! the programs' own `clap` definitions.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

#[path = "../../../../map/src/cli.rs"]
mod map_cli;

/// Appended to each program's main page. docs/reference.md lists the same exit codes.
const EXIT_STATUS: &str = r#".SH "EXIT STATUS"
.TP
0
success
.TP
1
failed, or a check, a decoding or an import found something wrong
.TP
64
bad usage or configuration
"#;
const DATA_LEFT: &str = r#".TP
75
data is left in the broker or in the spool; nothing is lost if a process comes back for it
"#;

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).context("usage: release-docs FOLDER")?;
    // clap takes the name from the crate that compiles the definition, here release-docs.
    let programs =
        [("milepost", milepost::cli::command()), ("milepost-map", map_cli::Arguments::command())];
    for (name, program) in programs {
        write(name, program.name(name), Path::new(&folder))?;
    }
    Ok(())
}

/// Writes `FOLDER/PROGRAM/man/*.1` and
/// `FOLDER/PROGRAM/completions/{PROGRAM.bash,_PROGRAM,PROGRAM.fish}`.
fn write(name: &str, program: Command, folder: &Path) -> Result<()> {
    // Without the commit, so that the pages are the same for every build of a version.
    let mut program =
        program.version(milepost_observe::build::VERSION).disable_help_subcommand(true);
    program.build();
    let (man, completions) = (folder.join(name).join("man"), folder.join(name).join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut program, name, &completions)?;
    }
    clap_mangen::generate_to(program, &man)?;
    let data_left = if name == "milepost" { DATA_LEFT } else { "" };
    let page = man.join(format!("{name}.1"));
    fs::write(&page, fs::read_to_string(&page)? + EXIT_STATUS + data_left)?;
    Ok(())
}
