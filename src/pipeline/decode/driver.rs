//! Where the driver's id comes from.

use super::extract::Pointer;
use super::json::Scalar;
use super::refusal::Refusal;
use super::topic::Levels;
use crate::pipeline::position::{DRIVER_ID_RULE, DriverId, OutOfRange};
use crate::pipeline::reject::Reason;

#[derive(Debug, Clone)]
pub(crate) enum Driver {
    Topic(Template),
    Payload(Pointer),
}

/// The driver of one message, as far as its topic names it.
pub(super) enum Named<'s> {
    InTopic(DriverId),
    InPayload(&'s Pointer),
}

impl Named<'_> {
    /// The topic's driver, or that of the first object that has a value at the pointer, else `otherwise`.
    pub(super) fn id(&self, objects: [&[u8]; 2], otherwise: Option<DriverId>) -> Result<DriverId, Refusal> {
        let pointer = match self {
            Self::InTopic(id) => return Ok(*id),
            Self::InPayload(pointer) => pointer,
        };
        for json in objects {
            let text = std::str::from_utf8(json)
                .map_err(|error| Refusal::new(Reason::InvalidUtf8, error.to_string()))?;
            let value = pointer.value(text)?;
            if !value.is_missing() {
                return id_of(pointer, &value);
            }
        }
        otherwise.map_or_else(|| id_of(pointer, &Scalar::Missing), Ok)
    }
}

/// The id that a payload has at `pointer`.
pub(super) fn id_of(pointer: &Pointer, value: &Scalar<'_>) -> Result<DriverId, Refusal> {
    let id = match value {
        Scalar::Text(text) => DriverId::new(text.as_bytes()),
        Scalar::Integer(number) => DriverId::new(number.to_string()),
        Scalar::Missing | Scalar::Number(_) | Scalar::Other(_) => Err(OutOfRange),
    };
    id.map_err(|OutOfRange| {
        Refusal::new(Reason::BadDriver, format!("{} is {value}; {DRIVER_ID_RULE}", pointer.as_str()))
    })
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
        let (mut parts, mut literals) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let wanted = || format!("\"{text}\": must be such as \"{{1}}\" or \"{{1}}:{{2}}\"");
            let (number, after) = after.split_once('}').ok_or_else(wanted)?;
            let number: usize = number.parse().map_err(|_| wanted())?;
            if number == 0 || number > pluses {
                return Err(format!("\"{text}\": there is no {{{number}}}: the topic has {pluses} levels +"));
            }
            literals.push_str(before);
            parts.extend([Part::Text(before.to_owned()), Part::Level(number - 1)]);
            rest = after;
        }
        if parts.is_empty() {
            return Err(format!(
                "\"{text}\": neither levels of the topic such as \"{{1}}\" nor a JSON pointer such as \"/device/id\""
            ));
        }
        literals.push_str(rest);
        if !literals.is_empty() && DriverId::new(&literals).is_err() {
            return Err(format!("\"{text}\": a driver id has only A-Z a-z 0-9 . _ : -"));
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| *part != Part::Text(String::new()));
        Ok(Self(parts))
    }

    /// The first `+` of the topic, and nothing else.
    pub(super) fn is_first_level(&self) -> bool {
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
