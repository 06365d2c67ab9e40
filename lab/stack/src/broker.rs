//! Real brokers: Mosquitto, and `strict-broker`, which never exceeds its window.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::process::{Process, free_port, local_program};

/// A running broker on a port of its own.
#[derive(Debug)]
pub struct Broker {
    process: Process,
    folder: PathBuf,
    kind: BrokerKind,
    /// Port of the MQTT listener.
    pub port: u16,
    /// Port of the second node of a strict-broker.
    pub second_port: Option<u16>,
    /// Port on which a strict-broker accepts commands.
    control: Option<u16>,
}

/// The broker to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerKind {
    /// Mosquitto with the configuration of lab/local. Sessions and queues survive
    /// [`Broker::stop`]. After kill -9 Mosquitto restores the state that it last saved; SIGUSR1
    /// makes it save.
    Mosquitto,
    /// `strict-broker`, with the window, queue and behaviour of its options. Its sessions are lost
    /// when it ends.
    Strict {
        binary: PathBuf,
        /// Options as in `strict-broker --help`.
        options: Vec<String>,
    },
}

impl Broker {
    /// Starts Mosquitto with its state in `folder`, and waits until it accepts connections.
    pub fn start(folder: &Path) -> Result<Self> {
        Self::start_kind(BrokerKind::Mosquitto, folder)
    }

    /// Starts a broker of this kind, and waits until it accepts connections.
    pub fn start_kind(kind: BrokerKind, folder: &Path) -> Result<Self> {
        let second_port = matches!(kind, BrokerKind::Strict { .. }).then(free_port).transpose()?;
        Self::launch(kind, folder, free_port()?, second_port)
    }

    fn launch(
        kind: BrokerKind,
        folder: &Path,
        port: u16,
        second_port: Option<u16>,
    ) -> Result<Self> {
        let control = matches!(kind, BrokerKind::Strict { .. }).then(free_port).transpose()?;
        let mut command = match &kind {
            BrokerKind::Mosquitto => {
                let mut command = local_program("broker", folder);
                command.env("MQTT_PORT", port.to_string());
                command
            }
            BrokerKind::Strict { binary, options } => {
                let mut command = Command::new(binary);
                let ports = [
                    ("--port", Some(port)),
                    ("--second-port", second_port),
                    ("--control", control),
                ];
                for (option, port) in ports {
                    command
                        .args(port.iter().flat_map(|port| [option.to_owned(), port.to_string()]));
                }
                command.args(options);
                command
            }
        };
        let process = Process::start("broker", &mut command, folder.join("broker.log"))?;
        let mut broker = Self { process, folder: folder.into(), kind, port, second_port, control };
        broker.process.wait_until("answers", || accepts(port))?;
        Ok(broker)
    }

    /// Returns the process of the broker.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Stops the broker with SIGTERM. Mosquitto saves its state first.
    pub fn stop(&mut self) -> Result<()> {
        self.process.signal("TERM")?;
        self.process.wait(Duration::from_secs(30)).map(drop)
    }

    /// Kills the broker with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Sends a command to a strict-broker, and returns its reply. lab/strict-broker/src/control.rs
    /// lists the commands.
    pub fn command(&self, command: &str) -> Result<String> {
        let port = self.control.context("this broker takes no commands")?;
        let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?);
        writeln!(stream.get_mut(), "{command}")?;
        let mut reply = String::new();
        loop {
            let mut line = String::new();
            ensure!(stream.read_line(&mut line)? > 0, "{command}: the broker has ended");
            ensure!(!line.starts_with("error"), "{command}: {}", line.trim_end());
            if line == "ok\n" {
                return Ok(reply);
            }
            reply.push_str(&line);
        }
    }

    /// Kills the broker if it still runs, and starts it again on the same port. Mosquitto restores
    /// the state that it last saved; a strict-broker starts without sessions.
    pub fn restart(self) -> Result<Self> {
        let Self { process, folder, kind, port, second_port, control: _ } = self;
        drop(process);
        Self::launch(kind, &folder, port, second_port)
    }
}

fn accepts(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}
