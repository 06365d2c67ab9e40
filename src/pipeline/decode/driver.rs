//! Where the driver's id comes from.

use super::extract::Pointer;
use super::topic::Levels;
use crate::pipeline::position::DriverId;

#[derive(Debug, Clone)]
pub(crate) enum Driver {
    Topic(Template),
    Payload(Pointer),
}

/// A driver's id made of a topic's levels: `{1}` is what the first `+` stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Level(usize),
}

impl Template {
    pub(super) fn first() -> Self {
        Self(vec![Part::Level(0)])
    }

    /// # Errors
    /// What is wrong with it, in words. `pluses`: how many `+` the filter has.
    pub(crate) fn new(text: &str, pluses: usize) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let wanted = || format!("\"{text}\": must be such as \"{{1}}\" or \"{{1}}:{{2}}\"");
            let (number, after) = after.split_once('}').ok_or_else(wanted)?;
            let number: usize = number.parse().map_err(|_| wanted())?;
            if number == 0 || number > pluses {
                return Err(format!("\"{text}\": there is no {{{number}}}: the topic has {pluses} levels +"));
            }
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Level(number - 1));
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| *part != Part::Text(String::new()));
        let literals: String = parts.iter().filter_map(Part::text).collect();
        if parts.iter().all(|part| part.text().is_some()) {
            return Err(format!(
                "\"{text}\": neither levels of the topic such as \"{{1}}\" nor a JSON pointer such as \"/device/id\""
            ));
        }
        if !literals.is_empty() && DriverId::new(&literals).is_err() {
            return Err(format!("\"{text}\": a driver id has only A-Z a-z 0-9 . _ : -"));
        }
        Ok(Self(parts))
    }

    /// The only `+` of the topic, and nothing else.
    pub(super) fn is_only_level(&self) -> bool {
        self.0 == [Part::Level(0)]
    }

    /// The id of these levels; empty if one of them is.
    pub(super) fn fill(&self, levels: &Levels<'_>) -> String {
        let mut id = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => id.push_str(text),
                Part::Level(level) if levels[*level].is_empty() => return String::new(),
                Part::Level(level) => id.push_str(levels[*level]),
            }
        }
        id
    }
}

impl Part {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Level(_) => None,
        }
    }
}
