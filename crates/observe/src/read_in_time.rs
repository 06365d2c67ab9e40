//! A stream whose writes fail if the peer does not read in time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream with a time limit for the peer to read. The clock starts when a write or a flush has to
/// wait, and stops when a flush finishes.
#[derive(Debug)]
pub struct ReadInTime<S> {
    stream: S,
    timeout: Duration,
    deadline: Pin<Box<Sleep>>,
    is_armed: bool,
}

impl<S> ReadInTime<S> {
    pub fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, timeout, deadline: Box::pin(sleep(timeout)), is_armed: false }
    }

    /// Returns `polled`, the result of a write or a flush. If the write or flush still waits at the
    /// deadline, returns an error instead.
    fn bounded<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            if !self.is_armed {
                self.deadline.as_mut().reset(Instant::now() + self.timeout);
                self.is_armed = true;
            }
            if self.deadline.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadInTime<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadInTime<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.bounded(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Hyper flushes once everything is written, so a finished flush ends the time limit.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        let polled = self.bounded(polled, cx);
        self.is_armed &= polled.is_pending();
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bounded(polled, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn peer_that_reads_nothing_or_too_slowly_is_disconnected() {
        let (stream, _peer) = duplex(10);
        let mut stalled = ReadInTime::new(stream, TIMEOUT);
        let began = Instant::now();
        let error = stalled.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, TIMEOUT));

        let (stream, mut peer) = duplex(10);
        let mut dripping = ReadInTime::new(stream, TIMEOUT);
        let reader = tokio::spawn(async move {
            while peer.read_u8().await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        assert!(dripping.write_all(&[0; 100]).await.is_err());
        drop(dripping);
        reader.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn connection_stays_open_while_idle_or_read_in_time() {
        let (stream, mut peer) = duplex(10);
        let mut stream = ReadInTime::new(stream, TIMEOUT);
        for _ in 0..5 {
            let reader = async {
                sleep(Duration::from_secs(3)).await;
                peer.read_exact(&mut [0; 100]).await
            };
            let writer = async {
                stream.write_all(&[0; 100]).await?;
                stream.flush().await
            };
            let (read, written) = tokio::join!(reader, writer);
            read.and(written.map(|()| 0)).unwrap();
            sleep(10 * TIMEOUT).await;
        }
    }
}
