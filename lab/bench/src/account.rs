//! What was lost, and what was stored twice: the other half of every figure.

use crate::cases::thousands;
use crate::report::repetitions_in_words;
use crate::trial::Trial;

/// What was lost and stored twice in several steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Account {
    steps: u64,
    /// Killed, it did not come back: what it did not store may still be with the broker.
    pub(crate) gone: bool,
    pub(crate) messages: u64,
    pub(crate) lost: u64,
    pub(crate) twice: u64,
}

impl Account {
    /// Of the steps that count and that were judged; `None`: there are none.
    pub(crate) fn of<'a>(trials: impl Iterator<Item = &'a Trial>) -> Option<Self> {
        let mut sum = Self::default();
        for trial in trials.filter(|trial| trial.refused.is_empty()) {
            let Some((lost, twice)) = trial.lost.zip(trial.duplicates) else { continue };
            sum.steps += 1;
            sum.messages += trial.messages;
            sum.lost += lost;
            sum.twice += twice;
            sum.gone |= trial.kills.as_ref().is_some_and(|kills| kills.gone.is_some());
        }
        (sum.steps > 0).then_some(sum)
    }

    /// "5 of 60,000 lost, 12 stored twice, in 3 steps"
    pub(crate) fn in_words(&self) -> String {
        let Self { steps, messages, lost, twice, .. } = self;
        let steps = repetitions_in_words(*steps);
        let [messages, lost, twice] = [messages, lost, twice].map(|count| thousands(*count));
        format!("{lost} of {messages} lost, {twice} stored twice, in {steps}")
    }
}
