//! Tests the executor against a server with one scripted behaviour.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use milepost::executor::Executor;
use milepost_core::batch::Batch;
use milepost_core::delivery::events::{DeliveryCommand, Piece, Report};
use milepost_core::delivery::sink::{Attempt, Sink, SinkError};
use milepost_core::erased::Erased;
use milepost_core::screened::{ErasedSnapshot, Screened};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, yield_now};

use crate::rows::position;

#[derive(Debug, Clone, Copy)]
enum Behaviour {
    Commit,
    Hang,
    Panic,
}

#[derive(Debug)]
struct Scripted {
    behaviour: Behaviour,
    /// Token and rows of each attempt.
    attempts: Mutex<Vec<(String, usize)>>,
}

impl Sink for Scripted {
    async fn insert(&self, insert: &Screened, attempt: &Attempt) -> Result<(), SinkError> {
        self.attempts.lock().unwrap().push((attempt.token.clone(), insert.rows));
        match self.behaviour {
            Behaviour::Commit => Ok(()),
            Behaviour::Hang => pending().await,
            Behaviour::Panic => panic!("scripted"),
        }
    }
}

struct Rig {
    server: Arc<Scripted>,
    commands: mpsc::Sender<DeliveryCommand>,
    reports: mpsc::Receiver<Report>,
    erased: watch::Sender<ErasedSnapshot>,
    running: JoinHandle<()>,
}

/// Starts an executor with a scripted server, and sends it a batch with a row of `d1` and a row of
/// `d2`.
async fn rig(behaviour: Behaviour) -> Rig {
    let server = Arc::new(Scripted { behaviour, attempts: Mutex::default() });
    let ((commands, command_queue), (report_sender, reports)) =
        (mpsc::channel(9), mpsc::channel(9));
    let erased = watch::channel(ErasedSnapshot::new(Arc::default(), Instant::now())).0;
    let executor = Executor {
        sink: Arc::clone(&server),
        spool: None,
        database: "fleet".to_owned(),
        erased: erased.subscribe(),
        reports: report_sender,
    };
    let running = tokio::spawn(executor.run(command_queue));
    let batch = Batch { positions: vec![position("d1", 1), position("d2", 2)], ..Batch::default() };
    commands.send(DeliveryCommand::Encode(batch)).await.unwrap();
    Rig { server, commands, reports, erased, running }
}

impl Rig {
    /// Sends the command to insert both rows.
    async fn attempt(&self) {
        let attempt = Attempt { token: "token".to_owned(), timeout: Duration::from_secs(1) };
        let piece = Piece { insert: 0, rows: 0..2 };
        self.commands.send(DeliveryCommand::Attempt { batch: 0, piece, attempt }).await.unwrap();
    }
}

/// ClickHouse drops an insert whose token it already knows, even if the rows differ.
#[tokio::test]
async fn token_changes_only_if_rows_are_left_out() {
    let mut rig = rig(Behaviour::Commit).await;
    let mut digest = String::new();
    for driver in [None, Some("d3"), Some("d1")] {
        let list = Erased::new(driver.map(str::to_owned));
        digest = list.digest();
        rig.erased.send_replace(ErasedSnapshot::new(Arc::new(list), Instant::now()));
        rig.attempt().await;
        rig.reports.recv().await.unwrap();
    }
    let expected =
        [("token".to_owned(), 2), ("token".to_owned(), 2), (format!("token-{digest}"), 1)];
    assert_eq!(*rig.server.attempts.lock().unwrap(), expected);
}

#[tokio::test]
async fn panic_in_an_insert_ends_the_executor() {
    let mut rig = rig(Behaviour::Panic).await;
    rig.attempt().await;
    assert!(rig.reports.recv().await.is_none());
    assert!(rig.running.await.unwrap_err().is_panic());
}

#[tokio::test]
async fn hung_insert_ends_with_the_executor() {
    let rig = rig(Behaviour::Hang).await;
    rig.attempt().await;
    while rig.server.attempts.lock().unwrap().is_empty() {
        yield_now().await;
    }
    drop(rig.commands);
    rig.running.await.unwrap();
    // Let the task of the insert end, too.
    for _ in 0..100 {
        yield_now().await;
    }
    assert_eq!(Arc::strong_count(&rig.server), 1, "the hung insert still holds the server");
}
