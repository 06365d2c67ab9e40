//! What is done to the replicas, and when.

use super::arguments::Arguments;

#[derive(Debug, Clone)]
pub(super) enum Step {
    Shell(String),
    /// An insert is committed, and its answer is lost on the way; the next attempt meets the
    /// replica that this command turns to.
    TurnInMidInsert(String),
    /// The second replica gets its tables, and milepost is started again with a quorum, on the
    /// balancer.
    ScaleOut,
    /// From tables of one server to replicated ones, as docs/clickhouse.md says; what is copied is
    /// copied twice.
    Move,
    /// A driver is erased while their fixes come, from every replica.
    Erase,
    /// The first replica is started again without its data by these commands; before that the
    /// others forget it, and afterwards it gets its tables.
    Renew(Vec<String>),
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) harm: Vec<(u64, Step)>,
    /// Done when the fleet has sent everything and what is left without the first replica was
    /// looked at.
    pub(super) afterwards: Vec<String>,
}

impl Row {
    /// It begins with the first replica alone, and with another process than it ends with.
    pub(super) fn begins_alone(&self) -> bool {
        self.harm.iter().any(|(_, step)| matches!(step, Step::ScaleOut | Step::Move))
    }

    /// What is there in the beginning is not replicated.
    pub(super) fn moves(&self) -> bool {
        self.harm.iter().any(|(_, step)| matches!(step, Step::Move))
    }

    /// A driver is nowhere in the end.
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
        // Long enough for several inserts to hear that their quorum is open.
        row("cut_then_killed", vec![shell(8, cut), shell(24, kill)], &[start, heal]),
        row("disk_lost", vec![shell(8, cut), shell(24, wipe), renew(28)], &[]),
        row("partition", vec![shell(8, cut), shell(18, heal)], &[]),
        row("failover", vec![turn(8, &arguments.turn), turn(18, &arguments.turn_back)], &[]),
        row("scale_out", vec![Some((12, Step::ScaleOut))], &[]),
        row("moved", vec![Some((12, Step::Move))], &[]),
        row("erased", vec![Some((12, Step::Erase))], &[]),
        row(
            "keeper_away",
            vec![shell(8, &arguments.keeper_stop), shell(38, &arguments.keeper_start)],
            &[],
        ),
    ];
    rows.into_iter().flatten().collect()
}
