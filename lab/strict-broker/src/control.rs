//! What you tell the broker while it runs, with `--control PORT`: connect there, write a line, and read lines until one
//! says `ok` or begins with `error`. `nc` will do: `echo 'next 1 suback never' | nc -N 127.0.0.1 PORT`.
//!
//! | command | what it does |
//! |---|---|
//! | `sessions` | a line each: `ID connected\|away\|dying mailbox=N queued=N unacked=N FILTERS` |
//! | `counters` | a line each: `NAME N`, by EMQX's names |
//! | `snapshot` | writes all sessions to the file of `--snapshot` |
//! | `next N connack MANNER [for PREFIX]` | how the next N CONNECTs are answered |
//! | `next N suback MANNER [for PREFIX]` | the same for SUBSCRIBE; what was asked for holds |
//! | `kill PREFIX` | as EMQX's force_shutdown: TCP closed without a word, the session gone, nothing counted or passed on |
//!
//! `PREFIX` is what client ids begin with; `next` without one means every client. `MANNER` is one of
//!
//! * `never`: no answer, and the connection stays open;
//! * `late D`: after `D`, such as `7s`; a client that has left by then keeps its session;
//! * `refuse CODE`: this reason code (`0x89`); a CONNECT is then closed, and its session is as it was;
//! * `lose`, for `connack` alone: the session is emptied, and the connection is closed without an answer.

use std::rc::Rc;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::broker::Broker;
use crate::hub::Hub;
use crate::options;
use crate::orders::{Answer, Manner, Order};
use crate::router::ClientId;
use crate::session::{Death, Life};
use crate::snapshot;

/// Serves whoever connects to the control port.
pub(crate) async fn serve(listener: TcpListener, hub: Rc<Hub>) {
    while let Ok((stream, _)) = listener.accept().await {
        let hub = Rc::clone(&hub);
        tokio::task::spawn_local(async move {
            let _ = answer(stream, &hub).await; // whoever asks and leaves does not want to know
        });
    }
}

async fn answer(mut stream: TcpStream, hub: &Hub) -> std::io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split_whitespace().collect();
        let reply = match obey(&words, hub) {
            Ok(said) => format!("{said}ok\n"),
            Err(why) => format!("error: {why}\n"),
        };
        writer.write_all(reply.as_bytes()).await?;
    }
    Ok(())
}

fn obey(words: &[&str], hub: &Hub) -> Result<String, String> {
    let mut broker = hub.broker.borrow_mut();
    match *words {
        ["sessions"] => return Ok(sessions(&broker)),
        ["counters"] => {
            let counters = broker.counters.named();
            return Ok(counters.iter().map(|(name, value)| format!("{name} {value}\n")).collect());
        }
        ["snapshot"] => {
            let file = hub.options.snapshot.as_deref().ok_or("there is no --snapshot FILE")?;
            snapshot::save(&broker, file).map_err(|error| format!("{error:#}"))?;
        }
        ["next", count, answer, ref rest @ ..] => {
            hub.orders.borrow_mut().push(order(count, answer, rest)?);
        }
        ["kill", prefix] => {
            let named = broker.sessions.keys().filter(|client| client.starts_with(prefix));
            for client in named.cloned().collect::<Vec<ClientId>>() {
                broker.kill(&client, Death::Asked, Instant::now());
            }
        }
        _ => return Err(format!("{words:?} is no command; see the top of src/control.rs")),
    }
    Ok(String::new())
}

fn order(count: &str, answer: &str, rest: &[&str]) -> Result<Order, String> {
    let left = count.parse().ok().filter(|count| *count > 0).ok_or("next N: a number above 0 is wanted")?;
    let answer = match answer {
        "connack" => Answer::Connect,
        "suback" => Answer::Subscribe,
        _ => return Err(format!("{answer}: connack or suback is wanted")),
    };
    let (rest, prefix) = match rest {
        [rest @ .., "for", prefix] => (rest, (*prefix).to_owned()),
        rest => (rest, String::new()),
    };
    let manner = match *rest {
        ["never"] => Manner::Never,
        ["late", time] => Manner::Late(humantime::parse_duration(time).map_err(|error| error.to_string())?),
        ["refuse", code] => Manner::Refuse(options::code(code)?),
        ["lose"] if answer == Answer::Connect => Manner::Lose,
        _ => return Err(format!("{rest:?} is no manner; see the top of src/control.rs")),
    };
    Ok(Order { left, answer, manner, prefix })
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
                "{client} {life} mailbox={} queued={} unacked={} {}\n",
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::orders::Orders;

    fn orders(lines: &[&str]) -> Orders {
        let order = |line: &&str| {
            let words: Vec<&str> = line.split(' ').collect();
            order(words[1], words[2], &words[3..]).unwrap()
        };
        let mut orders = Orders::default();
        lines.iter().map(order).for_each(|order| orders.push(order));
        orders
    }

    #[test]
    fn an_order_holds_for_its_answer_its_clients_and_its_number() {
        let mut orders = orders(&["next 2 connack late 7s for milepost", "next 1 suback refuse 0x87"]);
        assert_eq!(orders.take(Answer::Connect, "loadgen-1"), None);
        assert_eq!(orders.take(Answer::Subscribe, "loadgen-1"), Some(Manner::Refuse(0x87)));
        assert_eq!(orders.take(Answer::Subscribe, "loadgen-1"), None);
        for _ in 0..2 {
            let late = Some(Manner::Late(Duration::from_secs(7)));
            assert_eq!(orders.take(Answer::Connect, "milepost-1"), late);
        }
        assert_eq!(orders.take(Answer::Connect, "milepost-1"), None);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (count, answer, rest) in [
            ("0", "connack", vec!["never"]),
            ("1", "puback", vec!["never"]),
            ("1", "suback", vec!["lose"]),
            ("1", "connack", vec!["late"]),
            ("1", "connack", vec!["refuse", "0x100"]),
            ("1", "connack", vec!["never", "for"]),
        ] {
            assert!(order(count, answer, &rest).is_err(), "next {count} {answer} {rest:?}");
        }
    }
}
