//! Commands to the running broker. With `--control PORT`, connect to the port, write a line, and
//! read lines until one is `ok` or begins with `error`. With `nc`: `echo 'next 1 suback never' | nc
//! -N 127.0.0.1 PORT`.
//!
//! | command | effect |
//! |---|---|
//! | `sessions` | one line for each session: `ID connected\|away\|dying node=N mailbox=N queued=N unacked=N FILTERS` |
//! | `counters` | one line for each counter: `NAME N`, with EMQX's names |
//! | `next N connack BEHAVIOUR [for PREFIX]` | the next N CONNECTs are answered in this way |
//! | `next N suback BEHAVIOUR [for PREFIX]` | the next N SUBSCRIBEs are answered in this way; the subscriptions are made in any case |
//! | `node N down` | kill -9 of node 0 or 1: connections cut, sessions gone, their shared subscriptions left behind as ghosts |
//! | `node N hang` | the node accepts new connections, and sends them no CONNACK until `node N up` |
//! | `node N up` | the node is back, or was removed from the cluster (EMQX: force-leave): its ghosts are gone |
//! | `deny D` | for `D`, such as `20s`, every CONNECT, SUBSCRIBE and PUBLISH is answered with 0x87, as EMQX does around a boot and a graceful stop |
//! | `lose N` | the next N messages with a subscriber are acknowledged and discarded; `counters` shows them |
//! | `kill PREFIX` | as EMQX's force_shutdown: TCP is closed without a DISCONNECT, and the session is gone, without a counter or redispatch |
//!
//! `PREFIX` is the beginning of client ids; `next` without a PREFIX applies to every client.
//! `BEHAVIOUR` is one of
//!
//! * `never`: no answer, and the connection stays open;
//! * `late D`: after `D`, such as `7s`; a client that has left by then keeps its session;
//! * `lose`, only for `connack`: the session is emptied, and the connection is closed without an
//!   answer.

use std::rc::Rc;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::broker::Broker;
use crate::hub::Hub;
use crate::orders::{Behaviour, Order, Request};
use crate::router::ClientId;
use crate::session::{Death, Life};

/// Serves the connections to the control port.
pub(crate) async fn serve(listener: TcpListener, hub: Rc<Hub>) {
    while let Ok((stream, _)) = listener.accept().await {
        let hub = Rc::clone(&hub);
        tokio::task::spawn_local(async move {
            let _ = answer(stream, &hub).await; // a failed reply concerns only the client that left
        });
    }
}

async fn answer(mut stream: TcpStream, hub: &Hub) -> std::io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split_whitespace().collect();
        let reply = match execute(&words, hub) {
            Ok(output) => format!("{output}ok\n"),
            Err(error) => format!("error: {error}\n"),
        };
        writer.write_all(reply.as_bytes()).await?;
    }
    Ok(())
}

fn execute(words: &[&str], hub: &Hub) -> Result<String, String> {
    let mut broker = hub.broker.borrow_mut();
    match *words {
        ["sessions"] => return Ok(sessions(&broker)),
        ["counters"] => {
            let counters = broker.counters.named();
            return Ok(counters.iter().map(|(name, value)| format!("{name} {value}\n")).collect());
        }
        ["next", count, request, ref rest @ ..] => {
            hub.orders.borrow_mut().push(parse_order(count, request, rest)?);
        }
        ["node", number, action @ ("down" | "up" | "hang")] => {
            let node =
                number.parse().ok().filter(|node| *node < 2).ok_or("node N: N must be 0 or 1")?;
            match action {
                "down" => broker.kill_node(node),
                "hang" => broker.hung[node] = true,
                _ => broker.start_node(node),
            }
        }
        ["deny", time] => {
            let time = humantime::parse_duration(time).map_err(|error| error.to_string())?;
            broker.denies_until = Some(Instant::now() + time);
        }
        ["lose", count] => {
            broker.to_lose += count.parse::<u64>().map_err(|_| "lose N: N must be a number")?;
        }
        ["kill", prefix] => {
            let matching = broker.sessions.keys().filter(|client| client.starts_with(prefix));
            for client in matching.cloned().collect::<Vec<ClientId>>() {
                broker.kill(&client, Death::Requested, Instant::now());
            }
        }
        _ => return Err(format!("{words:?} is not a command; see the top of src/control.rs")),
    }
    Ok(String::new())
}

/// Parses the words after `next`.
fn parse_order(count: &str, request: &str, rest: &[&str]) -> Result<Order, String> {
    let remaining = count
        .parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or("next N: N must be a number above 0")?;
    let request = match request {
        "connack" => Request::Connect,
        "suback" => Request::Subscribe,
        _ => return Err(format!("{request}: must be connack or suback")),
    };
    let (rest, prefix) = match rest {
        [rest @ .., "for", prefix] => (rest, (*prefix).to_owned()),
        rest => (rest, String::new()),
    };
    let behaviour = match *rest {
        ["never"] => Behaviour::Never,
        ["late", time] => {
            Behaviour::Late(humantime::parse_duration(time).map_err(|error| error.to_string())?)
        }
        ["lose"] if request == Request::Connect => Behaviour::Lose,
        _ => return Err(format!("{rest:?} is not a behaviour; see the top of src/control.rs")),
    };
    Ok(Order { remaining, request, behaviour, prefix })
}

fn sessions(broker: &Broker) -> String {
    let mut lines: Vec<String> = broker
        .sessions
        .iter()
        .map(|(client, session)| {
            let life = match session.life {
                Life::Connected(_) => "connected",
                Life::Away(_) => "away",
                Life::Dying(_) => "dying",
            };
            let filters: Vec<&str> = session.subscriptions.keys().map(String::as_str).collect();
            format!(
                "{client} {life} node={} mailbox={} queued={} unacked={} {}\n",
                session.node,
                session.mailbox.len(),
                session.outbox.queued(),
                session.outbox.unacked(),
                filters.join(" ")
            )
        })
        .collect();
    lines.sort_unstable();
    lines.concat()
}
