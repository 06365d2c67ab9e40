//! What a setting can be, and how it is shown.

use std::net::SocketAddr;
use std::time::Duration;

use config::{Value, ValueKind};

use super::types::{InsertQuorum, LeaveGroup, LogFormat, Replication};
use crate::consumer::{CONNECTIONS_MAX, Connections};
use crate::session::events::Qos;

/// A type that a setting can have.
pub trait Setting: Sized {
    /// From a file's or the environment's value; the error says what is wanted.
    fn parse(value: Value) -> Result<Self, String>;
    /// As TOML.
    fn show(&self) -> String;
}

impl Setting for String {
    fn parse(value: Value) -> Result<Self, String> {
        value.into_string().map_err(|_| "a text is wanted".to_owned())
    }
    /// A basic string of TOML, whose escapes are not Rust's.
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
        value.into_bool().map_err(|_| "true or false is wanted".to_owned())
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn parse(value: Value) -> Result<Self, String> {
                let wanted = || format!("a whole number of at most {} is wanted", <$type>::MAX);
                let number = value.into_int().map_err(|_| wanted())?;
                Self::try_from(number).map_err(|_| wanted())
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
whole_numbers!(u8, u16, u32, u64, usize);

impl Setting for Duration {
    fn parse(value: Value) -> Result<Self, String> {
        let text = value.into_string().unwrap_or_default();
        humantime::parse_duration(&text)
            .map_err(|_| format!("\"{text}\" is not a duration such as \"1s\", \"500ms\" or \"30d\""))
    }
    fn show(&self) -> String {
        format!("\"{}\"", humantime::format_duration(*self))
    }
}

impl Setting for Vec<String> {
    fn parse(value: Value) -> Result<Self, String> {
        let wanted = || "a list of texts is wanted (in the environment: with commas)".to_owned();
        if let ValueKind::String(text) = &value.kind {
            if text.trim_start().starts_with('[') {
                return Err(format!(
                    "{text} is not a list here: in the environment, separate with commas: a,b"
                ));
            }
            return Ok(text.split(',').map(|item| item.trim().to_owned()).collect());
        }
        value.into_array().map_err(|_| wanted())?.into_iter().map(String::parse).collect()
    }
    fn show(&self) -> String {
        format!("[{}]", self.iter().map(Setting::show).collect::<Vec<_>>().join(", "))
    }
}

impl Setting for SocketAddr {
    fn parse(value: Value) -> Result<Self, String> {
        let text = value.into_string().unwrap_or_default();
        text.parse().map_err(|_| format!("\"{text}\" is not an address and port such as \"0.0.0.0:9464\""))
    }
    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

impl Setting for LogFormat {
    fn parse(value: Value) -> Result<Self, String> {
        match value.into_string().unwrap_or_default().as_str() {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("\"{other}\" is neither \"text\" nor \"json\"")),
        }
    }
    fn show(&self) -> String {
        match self {
            Self::Text => "\"text\"".to_owned(),
            Self::Json => "\"json\"".to_owned(),
        }
    }
}

impl Setting for LeaveGroup {
    fn parse(value: Value) -> Result<Self, String> {
        if matches!(&value.kind, ValueKind::String(text) if text == "auto") {
            return Ok(Self::Auto);
        }
        match value.into_bool() {
            Ok(true) => Ok(Self::Always),
            Ok(false) => Ok(Self::Never),
            Err(_) => Err("\"auto\", true or false is wanted".to_owned()),
        }
    }
    fn show(&self) -> String {
        match self {
            Self::Auto => "\"auto\"".to_owned(),
            Self::Always => "true".to_owned(),
            Self::Never => "false".to_owned(),
        }
    }
}

impl Setting for Qos {
    fn parse(value: Value) -> Result<Self, String> {
        match value.into_int() {
            Ok(0) => Ok(Self::AtMostOnce),
            Ok(1) => Ok(Self::AtLeastOnce),
            Ok(_) | Err(_) => Err("0 or 1 is wanted".to_owned()),
        }
    }
    fn show(&self) -> String {
        self.number().to_string()
    }
}

impl Setting for Replication {
    fn parse(value: Value) -> Result<Self, String> {
        match value.into_string().unwrap_or_default().as_str() {
            "none" => Ok(Self::None),
            "macros" => Ok(Self::Macros),
            "managed" => Ok(Self::Managed),
            other => Err(format!("\"{other}\" is neither \"none\" nor \"macros\" nor \"managed\"")),
        }
    }
    fn show(&self) -> String {
        match self {
            Self::None => "\"none\"".to_owned(),
            Self::Macros => "\"macros\"".to_owned(),
            Self::Managed => "\"managed\"".to_owned(),
        }
    }
}

impl Setting for InsertQuorum {
    fn parse(value: Value) -> Result<Self, String> {
        if matches!(&value.kind, ValueKind::String(text) if text == "auto") {
            return Ok(Self::Auto);
        }
        let number = value.into_int().ok().and_then(|number| u8::try_from(number).ok());
        let number = number.filter(|number| *number != 1);
        number.map(Self::Replicas).ok_or_else(|| {
            "\"auto\" or a number of at least 2 is wanted; 0: none (1 would be none, too)".to_owned()
        })
    }
    fn show(&self) -> String {
        match self {
            Self::Auto => "\"auto\"".to_owned(),
            Self::Replicas(number) => number.to_string(),
        }
    }
}

impl Setting for Connections {
    fn parse(value: Value) -> Result<Self, String> {
        if matches!(&value.kind, ValueKind::String(text) if text == "auto") {
            return Ok(Self::Auto);
        }
        let number = value.into_int().ok().and_then(|number| usize::try_from(number).ok());
        let number = number.filter(|number| (1..=CONNECTIONS_MAX).contains(number));
        number
            .map(Self::Fixed)
            .ok_or_else(|| format!("\"auto\" or a number of 1..={CONNECTIONS_MAX} is wanted"))
    }
    fn show(&self) -> String {
        match self {
            Self::Auto => "\"auto\"".to_owned(),
            Self::Fixed(number) => number.to_string(),
        }
    }
}
