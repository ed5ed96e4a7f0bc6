//! One connection, made when needed and again after it failed.

use std::time::Duration;

use lapin::options::ConfirmSelectOptions;
use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, ConnectionProperties};
use tokio::sync::Mutex;

use crate::{BusError, Result, topology};

/// Handle on the broker.
pub struct Bus {
    uri: AMQPUri,
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// Channel in confirm mode, kept open between publishes.
    publisher: Option<Channel>,
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus").field("vhost", &self.uri.vhost).finish_non_exhaustive()
    }
}

impl Bus {
    /// Does not connect yet.
    ///
    /// # Errors
    /// When the URL cannot be parsed.
    pub fn new(url: &str, patience: Duration) -> Result<Self> {
        let uri = url.parse().map_err(|_| BusError::BadUrl)?;
        Ok(Self { uri, patience, state: Mutex::default() })
    }

    /// Runs a broker call under the time limit.
    pub(crate) async fn within<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(self.patience, call).await.map_err(|_| BusError::Slow(self.patience))?
    }

    /// A fresh channel, on a fresh connection when the old one is gone.
    pub(crate) async fn channel(&self) -> Result<Channel> {
        let mut state = self.state.lock().await;
        self.within(async { Ok(Self::connected(&self.uri, &mut state).await?.create_channel().await?) }).await
    }

    /// The shared channel in confirm mode.
    pub(crate) async fn publisher(&self) -> Result<Channel> {
        let mut state = self.state.lock().await;
        if let Some(channel) = state.publisher.as_ref().filter(|c| c.status().connected()) {
            return Ok(channel.clone());
        }
        let channel = self
            .within(async {
                let channel = Self::connected(&self.uri, &mut state).await?.create_channel().await?;
                channel.confirm_select(ConfirmSelectOptions::default()).await?;
                Ok(channel)
            })
            .await?;
        state.publisher = Some(channel.clone());
        Ok(channel)
    }

    async fn connected<'s>(uri: &AMQPUri, state: &'s mut State) -> Result<&'s Connection> {
        if !state.connection.as_ref().is_some_and(|c| c.status().connected()) {
            state.publisher = None;
            state.connection = None;
            let connection = Connection::connect_uri(uri.clone(), ConnectionProperties::default()).await?;
            topology::declare(&connection).await?;
            state.connection = Some(connection);
        }
        Ok(state.connection.as_ref().expect("set above"))
    }

    /// Forgets the connection, so that the next call makes a new one.
    pub(crate) async fn forget(&self) {
        let mut state = self.state.lock().await;
        state.publisher = None;
        state.connection = None;
    }

    /// Fails unless the broker can be talked to.
    ///
    /// # Errors
    /// When it cannot.
    pub async fn check(&self) -> Result<()> {
        self.publisher().await.map(|_| ())
    }
}
