//! The rows of the report: the harm that is done to the replicas, and when.

use super::arguments::Arguments;

#[derive(Debug, Clone)]
pub(super) enum Step {
    Shell(String),
    /// Commits an insert and loses its answer; the next attempt reaches the replica that this
    /// command makes the balancer prefer.
    TurnInMidInsert(String),
    /// Creates the tables on the second replica, and restarts milepost with a quorum, on the
    /// balancer.
    ScaleOut,
    /// Moves from the tables of one server to replicated ones, as in docs/clickhouse.md. The
    /// history is copied twice.
    Move,
    /// Erases a driver on every replica, while the driver's fixes arrive.
    Erase,
    /// Adds fields on the first replica, restarts milepost with them, and adds them on the others.
    AddField,
    /// Makes the other replicas forget the first one, starts it again without its data by these
    /// commands, and creates its tables.
    Renew(Vec<String>),
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Steps, each with its time in seconds from the beginning.
    pub(super) harm: Vec<(u64, Step)>,
    /// Commands that run when the fleet has sent everything, and the other replicas and the spool
    /// have been examined without the first replica.
    pub(super) afterwards: Vec<String>,
}

impl Row {
    /// Returns `true` if the row begins with the first replica alone.
    pub(super) fn begins_alone(&self) -> bool {
        self.harm.iter().any(|(_, step)| matches!(step, Step::ScaleOut | Step::Move))
    }

    /// Returns `true` if the row ends with another process of milepost than it began with.
    pub(super) fn restarts(&self) -> bool {
        self.begins_alone() || self.adds_field()
    }

    /// Returns `true` if the tables are not replicated at the beginning.
    pub(super) fn moves(&self) -> bool {
        self.harm.iter().any(|(_, step)| matches!(step, Step::Move))
    }

    /// Returns `true` if the columns of fields must have their values at the end.
    pub(super) fn adds_field(&self) -> bool {
        self.harm.iter().any(|(_, step)| matches!(step, Step::AddField))
    }

    /// Returns `true` if a driver must be absent at the end.
    pub(super) fn erases(&self) -> bool {
        self.harm.iter().any(|(_, step)| matches!(step, Step::Erase))
    }
}

pub(super) fn all(arguments: &Arguments) -> Vec<Row> {
    let shell = |at: u64, command: &Option<String>| Some((at, Step::Shell(command.clone()?)));
    let turn =
        |at: u64, command: &Option<String>| Some((at, Step::TurnInMidInsert(command.clone()?)));
    let renew =
        |at: u64| Some((at, Step::Renew(vec![arguments.start.clone()?, arguments.heal.clone()?])));
    let row = |name, harm: Vec<Option<(u64, Step)>>, afterwards: &[&Option<String>]| {
        let harm = harm.into_iter().collect::<Option<_>>()?;
        let afterwards =
            afterwards.iter().map(|command| (*command).clone()).collect::<Option<_>>()?;
        Some(Row { name, harm, afterwards })
    };
    let Arguments { kill, wipe, start, cut, heal, .. } = arguments;
    let rows = [
        row("killed", vec![shell(8, kill), shell(18, start)], &[]),
        // Long enough for several inserts to receive the error that their quorum is not reached.
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
