//! Starts servers for a single test: a broker with TLS and logins, and a scripted proxy in front of
//! ClickHouse.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use lab_harness::tls::Identity;
use lab_stack::{Process, free_port, wait_until};

use crate::world::SOON;

/// Writes a file. Returns its path as a string, for use in a configuration.
pub fn write_file(folder: &Path, name: &str, text: &str) -> Result<String> {
    let path = folder.join(name);
    std::fs::write(&path, text)?;
    Ok(path.to_str().context("the path is not UTF-8")?.to_owned())
}

/// Mosquitto with the listeners of a test.
pub struct SecureBroker {
    process: Process,
    folder: PathBuf,
    ports: BTreeMap<&'static str, u16>,
}

impl SecureBroker {
    /// Starts Mosquitto. Each listener has a name and its lines of configuration. Adds the listener
    /// "plain", without TLS and logins, for the test's own clients.
    pub fn start(folder: &Path, listeners: &[(&'static str, String)]) -> Result<Self> {
        let folder = folder.join("mosquitto");
        std::fs::create_dir_all(&folder)?;
        let user = String::from_utf8(Command::new("id").arg("-un").output()?.stdout)?;
        let mut config = format!(
            "per_listener_settings true\nuser {}\nlog_dest stderr\nmax_inflight_messages 65535\n\
             max_queued_messages 100000\npersistence true\npersistence_location {}/\n",
            user.trim(),
            folder.display()
        );
        let mut ports = BTreeMap::new();
        let plain = ("plain", "allow_anonymous true".to_owned());
        for (name, lines) in [plain].iter().chain(listeners) {
            let port = free_port()?;
            config.push_str(&format!("listener {port} 127.0.0.1\n{lines}\n"));
            ports.insert(*name, port);
        }
        std::fs::write(folder.join("mosquitto.conf"), config)?;
        Self::launch(folder, ports)
    }

    fn launch(folder: PathBuf, ports: BTreeMap<&'static str, u16>) -> Result<Self> {
        let mut command = Command::new("mosquitto");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/usr/local/sbin")); // Debian installs it there
        command.arg("-c").arg(folder.join("mosquitto.conf"));
        let process = Process::start("mosquitto", &mut command, folder.join("mosquitto.log"))?;
        for port in ports.values() {
            wait_until("the broker answers", SOON, || {
                Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok())
            })
            .with_context(|| process.log().unwrap_or_default())?;
        }
        Ok(Self { process, folder, ports })
    }

    /// Stops Mosquitto gracefully and starts it with the current files.
    pub fn restart(mut self) -> Result<Self> {
        self.process.signal("TERM")?;
        self.process.wait(SOON)?;
        Self::launch(self.folder, self.ports)
    }

    pub fn port(&self, listener: &str) -> u16 {
        self.ports[listener]
    }
}

/// Returns the configuration of a TLS listener with this certificate.
pub fn tls_lines(folder: &Path, name: &str, ca: &str, identity: &Identity) -> Result<String> {
    Ok(format!(
        "cafile {}\ncertfile {}\nkeyfile {}",
        write_file(folder, &format!("{name}-ca.pem"), ca)?,
        write_file(folder, &format!("{name}.pem"), &identity.cert)?,
        write_file(folder, &format!("{name}.key"), &identity.key)?,
    ))
}

/// Writes Mosquitto's password file, with this user only. Returns its path.
pub fn broker_password(folder: &Path, user: &str, password: &str) -> Result<String> {
    let file = write_file(folder, "mosquitto.passwd", "")?;
    let status = Command::new("mosquitto_passwd").args(["-b", &file, user, password]).status()?;
    ensure!(status.success(), "mosquitto_passwd failed");
    Ok(file)
}

/// Action of the proxy for a statement.
pub enum ProxyAction {
    /// Answers with this status and text. The engine does not get the statement.
    Answer(u16, String),
    /// Sends this statement to the engine instead, and forwards the engine's answer.
    Replace(String),
    /// Sends the statement to the engine, and forwards the engine's answer.
    Pass,
    /// Keeps the connection open without an answer, until the client closes it. The engine does not
    /// get the statement.
    NoAnswer,
    /// Sends the statement to the engine, but discards the engine's answer.
    LoseAnswer,
}

/// Starts a proxy to the engine, and returns the proxy's URL. `engine`: the engine's port. The
/// proxy calls `script` with the text of each statement. For an insert, the text is only the first
/// line of the HTTP request: the statement and its settings are in this line.
pub fn scripted_clickhouse(
    engine: u16,
    script: impl Fn(&str) -> ProxyAction + Send + Sync + 'static,
) -> Result<String> {
    scripted_clickhouse_with_size(engine, move |statement, _| script(statement))
}

/// Like [`scripted_clickhouse`], but `script` also gets the length of the request's body in bytes.
pub fn scripted_clickhouse_with_size(
    engine: u16,
    script: impl Fn(&str, usize) -> ProxyAction + Send + Sync + 'static,
) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let script = Arc::clone(&script);
            std::thread::spawn(move || answer(stream, engine, script.as_ref()));
        }
    });
    Ok(url)
}

/// Reads one request and executes the action that the script chooses for it.
fn answer(
    mut stream: TcpStream,
    engine: u16,
    script: &dyn Fn(&str, usize) -> ProxyAction,
) -> Result<()> {
    const CONTENT_LENGTH: &str = "content-length:";
    let mut request = Vec::new();
    let (head, body) = loop {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk)?;
        ensure!(read > 0, "the client closed the connection");
        request.extend_from_slice(&chunk[..read]);
        let Some(end) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
        let (head, body) =
            (String::from_utf8_lossy(&request[..end]).into_owned(), &request[end + 4..]);
        let is_length = |line: &&str| line.to_lowercase().starts_with(CONTENT_LENGTH);
        let value = |line: &str| line[CONTENT_LENGTH.len()..].trim().to_owned();
        let length = head.lines().find(is_length).map_or("0".to_owned(), value);
        if body.len() >= length.parse()? {
            let head: Vec<&str> = head.lines().filter(|line| !is_length(line)).collect();
            break (head.join("\r\n"), body.to_owned());
        }
    };
    let first_line = head.lines().next().unwrap_or_default();
    let is_insert = first_line.contains("query=INSERT");
    let statement = if is_insert { first_line.into() } else { String::from_utf8_lossy(&body) };
    let action = script(&statement, body.len());
    let body = match &action {
        ProxyAction::Answer(status, text) => {
            let length = text.len();
            write!(
                stream,
                "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{text}"
            )?;
            return Ok(());
        }
        ProxyAction::NoAnswer => {
            let _ = stream.read(&mut [0]);
            return Ok(());
        }
        ProxyAction::Replace(statement) => statement.clone().into_bytes(),
        ProxyAction::Pass | ProxyAction::LoseAnswer => body.clone(),
    };
    let mut upstream = TcpStream::connect((Ipv4Addr::LOCALHOST, engine))?;
    let length = body.len();
    write!(upstream, "{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n")?;
    upstream.write_all(&body)?;
    if matches!(action, ProxyAction::LoseAnswer) {
        std::io::copy(&mut upstream, &mut std::io::sink())?;
    } else {
        std::io::copy(&mut upstream, &mut stream)?;
    }
    Ok(())
}
