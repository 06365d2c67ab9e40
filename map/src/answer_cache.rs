//! Caches answers for a few seconds, and lets concurrent requests share a query: open pages repeat
//! the same requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Maximum age of a shared answer.
const AGE_MAX: Duration = Duration::from_secs(5);

/// Answers by query. Bounded, because few queries run at the same time and an answer is kept for
/// [`AGE_MAX`].
#[derive(Debug)]
pub struct AnswerCache<T>(Mutex<HashMap<String, CachedAnswer<T>>>);

/// An answer and the time of its arrival.
type CachedAnswer<T> = Arc<OnceCell<(Instant, T)>>;

impl<T> Default for AnswerCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> AnswerCache<T> {
    /// Returns a cached answer, waits for a query in flight with the same key, or runs `query`. If
    /// the caller that runs the query is dropped, the next waiting caller runs its own query.
    pub async fn answer(&self, key: String, query: impl Future<Output = T>) -> T {
        let cell = {
            let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            cells.retain(|_, cell| match cell.get() {
                Some((at, _)) => at.elapsed() < AGE_MAX,
                None => Arc::strong_count(cell) > 1,
            });
            Arc::clone(cells.entry(key).or_default())
        };
        cell.get_or_init(async || {
            let answer = query.await;
            (Instant::now(), answer)
        })
        .await
        .1
        .clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_a_query_even_if_its_runner_leaves() {
        tokio::time::pause();
        let (cache, query_count) = (AnswerCache::default(), Cell::new(0));
        let query = async || {
            query_count.set(query_count.get() + 1);
            sleep(Duration::from_secs(9)).await;
            query_count.get()
        };
        let ask = |key: &str| cache.answer(key.to_owned(), query());
        // The first caller of `a` leaves, and the second one runs the query again.
        let one_second = Duration::from_secs(1);
        let (first, second, third, other) =
            tokio::join!(timeout(one_second, ask("a")), ask("a"), ask("a"), ask("b"));
        assert!(first.is_err());
        assert_eq!((second, third, other, query_count.get()), (3, 3, 3, 3));
        assert_eq!((ask("a").await, query_count.get()), (3, 3));
        sleep(AGE_MAX).await;
        assert_eq!((ask("a").await, query_count.get()), (4, 4));
        // A query that no caller waits for is removed.
        assert!(timeout(one_second, ask("c")).await.is_err());
        ask("a").await;
        assert_eq!(cache.0.lock().unwrap().len(), 1);
    }
}
