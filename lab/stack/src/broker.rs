//! Real brokers: Mosquitto, and one that keeps to its window.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::process::{Process, free_port, local_program};

/// A real broker on a port of its own.
#[derive(Debug)]
pub struct Broker {
    process: Process,
    folder: PathBuf,
    kind: BrokerKind,
    /// Where it listens.
    pub port: u16,
    /// Where a strict-broker's second node listens.
    pub second_port: Option<u16>,
    /// Where a strict-broker takes commands.
    control: Option<u16>,
}

/// Which broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerKind {
    /// Mosquitto with our configuration. Sessions and queues survive [`Broker::stop`]; after kill
    /// -9 they are as they were when it last wrote them down, as it does at SIGUSR1.
    Mosquitto,
    /// `strict-broker`, which has the window, the queue and the manners it is asked for. Its
    /// sessions end with it.
    Strict {
        binary: PathBuf,
        /// See `strict-broker --help`.
        options: Vec<String>,
    },
}

impl Broker {
    /// Starts Mosquitto with its state in `folder`, and waits until it answers.
    pub fn start(folder: &Path) -> Result<Self> {
        Self::start_kind(BrokerKind::Mosquitto, folder)
    }

    /// Starts a broker of this kind.
    pub fn start_kind(kind: BrokerKind, folder: &Path) -> Result<Self> {
        let second = matches!(kind, BrokerKind::Strict { .. }).then(free_port).transpose()?;
        Self::launch(kind, folder, free_port()?, second)
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

    /// Its process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Stops it in the regular way, in which Mosquitto writes its state to disk.
    pub fn stop(&mut self) -> Result<()> {
        self.process.signal("TERM")?;
        self.process.wait(Duration::from_secs(30)).map(drop)
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Gives a strict-broker a command, and returns what it says; lab/strict-broker/src/control.rs
    /// lists them.
    pub fn tell(&self, command: &str) -> Result<String> {
        let port = self.control.context("this broker takes no commands")?;
        let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?);
        writeln!(stream.get_mut(), "{command}")?;
        let mut said = String::new();
        loop {
            let mut line = String::new();
            ensure!(stream.read_line(&mut line)? > 0, "{command}: the broker has ended");
            ensure!(!line.starts_with("error"), "{command}: {}", line.trim_end());
            if line == "ok\n" {
                return Ok(said);
            }
            said.push_str(&line);
        }
    }

    /// Starts it again on the same port with the same state.
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
