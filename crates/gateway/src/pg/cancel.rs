//! Which server a cancel key is for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hindcast_pg::tokio::Connector;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::startup::CancelKey;

/// Keys of the sessions that are alive. Touched when sessions come and go, not while bytes flow.
#[derive(Debug, Default)]
pub(super) struct CancelKeys {
    /// To the index of the server's address.
    owners: Mutex<HashMap<CancelKey, usize>>,
}

/// Forgets its key when the session ends.
#[derive(Debug)]
pub(super) struct Registration {
    keys: Arc<CancelKeys>,
    key: CancelKey,
}

impl CancelKeys {
    pub fn register(self: &Arc<Self>, key: CancelKey, address: usize) -> Registration {
        self.owners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone(), address);
        Registration {
            keys: Arc::clone(self),
            key,
        }
    }

    /// Of all sessions that are alive.
    pub fn processes(&self) -> Vec<u32> {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.keys().map(|key| key.process).collect()
    }

    fn owner(&self, key: &CancelKey) -> Option<usize> {
        self.owners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .copied()
    }

    /// Passes a request on to the server that gave out its key, and returns when that server has
    /// taken it: clients rely on the connection staying open until then. Unknown keys are ignored,
    /// as Postgres ignores them.
    pub async fn forward(&self, connector: &Connector, key: &CancelKey, packet: &[u8]) {
        let Some(address) = self.owner(key) else {
            tracing::debug!(process = key.process, "cancel request with an unknown key");
            return;
        };
        let forwarded = async {
            let mut server = connector
                .connect_to(address)
                .await
                .map_err(|error| error.to_string())?;
            server
                .write_all(packet)
                .await
                .map_err(|error| error.to_string())?;
            server.flush().await.map_err(|error| error.to_string())?;
            // The server says nothing and closes. A TLS connection may do so without taking leave.
            let _ = server.read(&mut [0; 1]).await;
            Ok::<_, String>(())
        };
        if let Err(reason) = forwarded.await {
            tracing::warn!(
                process = key.process,
                reason,
                "cannot forward a cancel request"
            );
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.keys
            .owners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}
