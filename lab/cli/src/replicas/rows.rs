//! The rows of the report: the steps that harm the replicas, each with its time.

use super::arguments::Arguments;

/// One step of a row.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Runs a shell command.
    Shell(String),
    /// Commits an insert, runs this command, and loses the answer. The command makes the balancer
    /// prefer another replica, so the next attempt reaches that replica.
    SwitchDuringInsert(String),
    /// Creates the tables on the other replicas, and restarts milepost with a quorum and the URL of
    /// the balancer.
    ScaleOut,
    /// Moves from the tables of one server to replicated tables, as in docs/clickhouse.md. Copies
    /// the history twice, as after an interrupted copy.
    Move,
    /// Erases a driver on every replica, while the driver's fixes arrive.
    Erase,
    /// Adds fields on the first replica, restarts milepost with the new fields, and adds the fields
    /// on the other replicas.
    AddField,
    /// Drops the first replica from the Keeper. Runs these commands, which start the replica
    /// without its data. Then creates the tables of the replica.
    Renew(Vec<String>),
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Steps, each with its time in seconds from the beginning.
    pub(super) steps: Vec<(u64, Step)>,
    /// Shell commands that bring the first replica back. They run after the fleet has sent
    /// everything and the second replica has been checked without the first.
    pub(super) final_commands: Vec<String>,
}

impl Row {
    /// Returns `true` if milepost uses only the first replica at the beginning.
    pub(super) fn begins_alone(&self) -> bool {
        self.steps.iter().any(|(_, step)| matches!(step, Step::ScaleOut | Step::Move))
    }

    /// Returns `true` if a step restarts milepost.
    pub(super) fn restarts(&self) -> bool {
        self.begins_alone() || self.adds_field()
    }

    /// Returns `true` if the tables are not replicated at the beginning.
    pub(super) fn moves(&self) -> bool {
        self.steps.iter().any(|(_, step)| matches!(step, Step::Move))
    }

    /// Returns `true` if the columns of fields must have their values at the end.
    pub(super) fn adds_field(&self) -> bool {
        self.steps.iter().any(|(_, step)| matches!(step, Step::AddField))
    }

    /// Returns `true` if a driver must be absent at the end.
    pub(super) fn erases(&self) -> bool {
        self.steps.iter().any(|(_, step)| matches!(step, Step::Erase))
    }
}

pub(super) fn all(arguments: &Arguments) -> Vec<Row> {
    let shell = |at: u64, command: &Option<String>| Some((at, Step::Shell(command.clone()?)));
    let turn =
        |at: u64, command: &Option<String>| Some((at, Step::SwitchDuringInsert(command.clone()?)));
    let renew =
        |at: u64| Some((at, Step::Renew(vec![arguments.start.clone()?, arguments.heal.clone()?])));
    let row = |name, steps: Vec<Option<(u64, Step)>>, final_commands: &[&Option<String>]| {
        let steps = steps.into_iter().collect::<Option<_>>()?;
        let final_commands =
            final_commands.iter().map(|command| (*command).clone()).collect::<Option<_>>()?;
        Some(Row { name, steps, final_commands })
    };
    let Arguments { kill, wipe, start, cut, heal, .. } = arguments;
    let rows = [
        row("killed", vec![shell(8, kill), shell(18, start)], &[]),
        // The cut lasts long enough for several inserts to fail because they reach no quorum.
        row("cut_then_killed", vec![shell(8, cut), shell(24, kill)], &[start, heal]),
        row("disk_lost", vec![shell(8, cut), shell(24, wipe), renew(28)], &[]),
        row("partition", vec![shell(8, cut), shell(18, heal)], &[]),
        row("failover", vec![turn(8, &arguments.turn), turn(18, &arguments.turn_back)], &[]),
        row("scale_out", vec![Some((12, Step::ScaleOut))], &[]),
        row("moved", vec![Some((12, Step::Move))], &[]),
        row("erased", vec![Some((12, Step::Erase))], &[]),
        row("field", vec![Some((8, Step::AddField)), shell(16, kill), shell(24, start)], &[]),
        row(
            "keeper_away",
            vec![shell(8, &arguments.keeper_stop), shell(38, &arguments.keeper_start)],
            &[],
        ),
    ];
    rows.into_iter().flatten().collect()
}
