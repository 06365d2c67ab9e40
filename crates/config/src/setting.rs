//! Parses and prints the types that settings can have.

use std::net::SocketAddr;
use std::time::Duration;

use config::{Value, ValueKind};

use super::types::{InsertQuorum, LeaveGroup, LogFormat, Replication};
use milepost_core::Qos;
use milepost_core::consumer::{CONNECTIONS_MAX, Connections};

/// A type that a setting can have.
pub trait Setting: Sized {
    /// Parses a value of the file or the environment. The error states what the value must be.
    fn parse(value: Value) -> Result<Self, String>;
    /// Returns the value as TOML.
    fn show(&self) -> String;
}

impl Setting for String {
    fn parse(value: Value) -> Result<Self, String> {
        value.into_string().map_err(|_| "must be a string".to_owned())
    }
    /// Returns a basic string of TOML, whose escapes differ from Rust's.
    fn show(&self) -> String {
        let mut shown = Self::from('"');
        for c in self.chars() {
            match c {
                '"' | '\\' => shown.extend(['\\', c]),
                c if c.is_control() => shown += &format!("\\u{:04x}", u32::from(c)),
                c => shown.push(c),
            }
        }
        shown + "\""
    }
}

impl Setting for bool {
    fn parse(value: Value) -> Result<Self, String> {
        // Do not parse with the library, which also accepts numbers and "yes".
        let boolean = if let ValueKind::Boolean(value) = &value.kind { Some(*value) } else { None };
        let parsed = || text(&value)?.to_lowercase().parse().ok();
        boolean.or_else(parsed).ok_or_else(|| "must be true or false".to_owned())
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

/// Returns a string without spaces around it; `None` if the value has another type.
fn text(value: &Value) -> Option<&str> {
    if let ValueKind::String(text) = &value.kind { Some(text.trim()) } else { None }
}

/// Parses a whole number strictly: the config library rounds, and accepts `true` as 1.
fn whole_number(value: &Value) -> Option<i128> {
    use ValueKind::{I64, I128, U64, U128};
    if let I64(_) | I128(_) | U64(_) | U128(_) = &value.kind {
        return value.clone().into_int128().ok();
    }
    text(value)?.parse().ok()
}

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn parse(value: Value) -> Result<Self, String> {
                let expected = || "must be a whole number".to_owned();
                let number = whole_number(&value).ok_or_else(expected)?;
                Self::try_from(number).map_err(|_| expected())
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
whole_numbers!(u8, u16, u32, u64, usize);

impl Setting for f64 {
    fn parse(value: Value) -> Result<Self, String> {
        let is_number = !matches!(&value.kind, ValueKind::Boolean(_) | ValueKind::String(_));
        let parsed = text(&value).and_then(|text| text.parse().ok());
        let number = if is_number { value.into_float().ok() } else { parsed };
        number
            .filter(|number: &Self| number.is_finite())
            .ok_or_else(|| "must be a number".to_owned())
    }
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl Setting for Duration {
    fn parse(value: Value) -> Result<Self, String> {
        let text = value.into_string().unwrap_or_default();
        humantime::parse_duration(&text).map_err(|_| {
            format!("\"{text}\" is not a duration such as \"1s\", \"500ms\" or \"30d\"")
        })
    }
    /// Prints whole days as days: the library would print months and years.
    fn show(&self) -> String {
        const DAY: u64 = 86_400;
        let days = self.as_secs() / DAY;
        if days > 0 && *self == Self::from_secs(days * DAY) {
            return format!("\"{days}d\"");
        }
        format!("\"{}\"", humantime::format_duration(*self))
    }
}

impl Setting for Vec<String> {
    fn parse(value: Value) -> Result<Self, String> {
        let expected = || "must be a list of strings, or one string with commas".to_owned();
        if let ValueKind::String(text) = &value.kind {
            // The error does not repeat the value: a URL may contain a password.
            if text.trim_start().starts_with('[') {
                let why = "must not begin with [: in the environment, separate the values with \
                           commas, as in a,b";
                return Err(why.to_owned());
            }
            return Ok(text.split(',').map(|item| item.trim().to_owned()).collect());
        }
        // A single number or boolean is a list of one.
        if matches!(value.kind, ValueKind::I64(_) | ValueKind::Float(_) | ValueKind::Boolean(_)) {
            return Ok(vec![String::parse(value)?]);
        }
        value.into_array().map_err(|_| expected())?.into_iter().map(String::parse).collect()
    }
    fn show(&self) -> String {
        format!("[{}]", self.iter().map(Setting::show).collect::<Vec<_>>().join(", "))
    }
}

impl Setting for SocketAddr {
    fn parse(value: Value) -> Result<Self, String> {
        let text = value.into_string().unwrap_or_default();
        text.parse()
            .map_err(|_| format!("\"{text}\" is not an address and port such as \"0.0.0.0:9464\""))
    }
    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

impl Setting for Qos {
    fn parse(value: Value) -> Result<Self, String> {
        match whole_number(&value) {
            Some(0) => Ok(Self::AtMostOnce),
            Some(1) => Ok(Self::AtLeastOnce),
            _ => Err("must be 0 or 1".to_owned()),
        }
    }
    fn show(&self) -> String {
        self.number().to_string()
    }
}

/// Implements settings for enums whose values have names.
macro_rules! named {
    ($type:ident: $expected:literal, $($name:literal = $variant:ident),+) => {
        impl Setting for $type {
            fn parse(value: Value) -> Result<Self, String> {
                match value.into_string().unwrap_or_default().as_str() {
                    $($name => Ok(Self::$variant),)+
                    other => Err(format!(concat!("\"{}\": must be ", $expected), other)),
                }
            }
            fn show(&self) -> String {
                match self {
                    $(Self::$variant => concat!('"', $name, '"').to_owned(),)+
                }
            }
        }
    };
}
named!(LogFormat: "\"text\" or \"json\"", "text" = Text, "json" = Json);
named!(
    Replication: "\"none\", \"macros\" or \"managed\"",
    "none" = None, "macros" = Macros, "managed" = Managed
);

/// Implements settings for enums that are `"auto"` or a value of another type.
macro_rules! auto_or {
    ($type:ident: $expected:expr, $parse:expr, $show:expr) => {
        impl Setting for $type {
            fn parse(value: Value) -> Result<Self, String> {
                if matches!(&value.kind, ValueKind::String(text) if text == "auto") {
                    return Ok(Self::Auto);
                }
                $parse(value).ok_or_else(|| $expected.to_owned())
            }
            fn show(&self) -> String {
                let shown: Option<String> = $show(*self);
                shown.unwrap_or_else(|| "\"auto\"".to_owned())
            }
        }
    };
}
auto_or!(
    LeaveGroup: "must be \"auto\", true or false",
    |value| bool::parse(value).ok().map(|leave| if leave { Self::Always } else { Self::Never }),
    |leave| match leave {
        Self::Auto => None,
        Self::Always => Some("true".to_owned()),
        Self::Never => Some("false".to_owned()),
    }
);
auto_or!(
    InsertQuorum: "must be \"auto\", 0 (no quorum) or at least 2 (1 would not be a quorum)",
    |value| u8::parse(value).ok().filter(|number| *number != 1).map(Self::Replicas),
    |quorum| match quorum {
        Self::Auto => None,
        Self::Replicas(number) => Some(number.to_string()),
    }
);
auto_or!(
    Connections: format!("must be \"auto\" or a number in 1..={CONNECTIONS_MAX}"),
    |value| {
        let number = usize::parse(value).ok()?;
        (1..=CONNECTIONS_MAX).contains(&number).then_some(Self::Fixed(number))
    },
    |connections| match connections {
        Self::Auto => None,
        Self::Fixed(number) => Some(number.to_string()),
    }
);
