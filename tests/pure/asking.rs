//! Checks which peers milepost asks for `/member`, and how often. The peers are tasks on the
//! loopback interface.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use milepost_core::peers::Peer;
use milepost_core::peers::decision::Decision;
use milepost_core::peers::member::{Member, MemberStatus};
use milepost_observe::peers::{MEMBER_PATH, decide_by_peers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

fn status_of(name: &str) -> MemberStatus {
    Member::new(name, "milepost", &["drivers/+/gps".to_owned()]).status(true, 0)
}

/// Starts a member. Returns the member's address and the counter of the requests that it receives.
async fn member(name: &str) -> (Peer, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (body, requests) = (status_of(name).to_json(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            let length = client.read(&mut request).await.unwrap();
            assert!(request[..length].starts_with(format!("GET {MEMBER_PATH} ").as_bytes()));
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            client.write_all((head + &body).as_bytes()).await.unwrap();
        }
    });
    (Peer { host: Ipv4Addr::LOCALHOST.to_string(), port }, requests)
}

#[tokio::test]
async fn peer_listed_twice_is_asked_once() {
    let (higher, requests) = member("milepost-2").await;
    let address = format!("{}:{}", higher.host, higher.port);
    let peers = [higher.clone(), higher];
    let decision = decide_by_peers(&peers, status_of("milepost-1"), Duration::from_secs(3)).await;
    let reasons = vec![format!("milepost-2 at {address} has a higher name")];
    assert_eq!(decision, Decision::Keep { reasons, certain: true });
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn member_with_a_lower_name_is_found_after_a_hung_member() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let hung = Peer { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
    let (lower, _) = member("milepost-0").await;
    let address = format!("{}:{}", lower.host, lower.port);
    let decision =
        decide_by_peers(&[hung, lower], status_of("milepost-1"), Duration::from_secs(600)).await;
    assert_eq!(decision, Decision::Leave { to: "milepost-0".to_owned(), address });
}
