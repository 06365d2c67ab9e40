//! `lab replicas` runs milepost on your replicas, which your own commands kill, cut off and start
//! again.
//!
//! A row holds if at the end every fix that the broker acknowledged is on each replica once, the
//! last positions of all replicas are equal, and the spool is empty. A row with final commands also
//! checks that the spool and the second replica hold everything while the first replica is away.
//! The machine needs Mosquitto. The rows create their tables on each replica with
//! `clickhouse.replication = "macros"`, in databases that are dropped afterwards.

mod arguments;
mod judge;
mod mistakes;
mod rows;
mod scene;

use anyhow::{Result, ensure};
use lab_harness::{patched, table::Table};
use lab_stack::say;

pub(crate) use self::arguments::Arguments;
use self::rows::Row;

/// Runs the rows. Returns whether all rows hold. With `--prove`, returns whether the rows find each
/// planted mistake.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.replica.len() > 1, "give --replica at least twice");
    let is_chosen =
        |row: &Row| arguments.only.is_empty() || arguments.only.iter().any(|name| name == row.name);
    let rows: Vec<Row> = rows::all(arguments).into_iter().filter(is_chosen).collect();
    ensure!(!rows.is_empty(), "no row can be played without its commands: see lab replicas --help");
    if arguments.prove { prove(arguments, &rows) } else { judge_all(arguments, &rows) }
}

fn judge_all(arguments: &Arguments, rows: &[Row]) -> Result<bool> {
    let mut table = Table::with_columns(judge::HEAD);
    let mut holds = true;
    for row in rows {
        let verdict = scene::judge(arguments, row)?;
        let cells = verdict.cells(row.name);
        say(&cells.join(", "));
        table.rows.push(cells);
        holds &= verdict.holds();
    }
    say(&table.markdown());
    Ok(holds)
}

fn prove(arguments: &Arguments, rows: &[Row]) -> Result<bool> {
    let mut table = Table::with_columns(
        ["a milepost that", "found by"].into_iter().chain(judge::HEAD.into_iter().skip(1)),
    );
    let mut all_found = true;
    for mistake in &mistakes::ALL {
        let Some(row) = rows.iter().find(|row| row.name == mistake.row) else { continue };
        let mut arguments = arguments.clone();
        match mistake.plant {
            mistakes::Plant::Patch(patch) => arguments.milepost = patched::build(patch)?,
            mistakes::Plant::InsertQuorum(quorum) => arguments.insert_quorum = quorum.to_owned(),
        }
        let verdict = scene::judge(&arguments, row)?;
        let mut cells = vec![mistake.description.to_owned()];
        cells.extend(verdict.cells(row.name));
        say(&cells.join(", "));
        table.rows.push(cells);
        all_found &= !verdict.holds();
    }
    ensure!(
        !table.rows.is_empty(),
        "no planted mistake has a row that can be played with these commands"
    );
    say(&table.markdown());
    Ok(all_found)
}
