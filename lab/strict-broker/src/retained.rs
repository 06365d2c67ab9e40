//! Retained messages, in memory. rmqtt has the store but leaves it switched off.

use std::time::Duration;

use async_trait::async_trait;
use rmqtt::Result;
use rmqtt::context::ServerContext;
use rmqtt::retain::{DefaultRetainStorage, RetainStorage};
use rmqtt::types::{Retain, TopicFilter, TopicName};

/// Switches retained messages on.
pub async fn install(scx: &ServerContext) {
    *scx.extends.retain_mut().await = Box::new(Retained(DefaultRetainStorage::new()));
}

struct Retained(DefaultRetainStorage);

#[async_trait]
impl RetainStorage for Retained {
    fn enable(&self) -> bool {
        true
    }

    async fn set(&self, topic: &TopicName, retain: Retain, expiry: Option<Duration>) -> Result<()> {
        let expiry = expiry.filter(|e| !e.is_zero()); // zero: the publisher named none
        self.0.set_with_timeout(topic, retain, expiry).await
    }

    async fn get(&self, filter: &TopicFilter) -> Result<Vec<(TopicName, Retain)>> {
        self.0.get_message(filter).await
    }

    async fn count(&self) -> isize {
        self.0.count().await
    }

    async fn max(&self) -> isize {
        self.0.max().await
    }
}
