//! The backup that bases are read from (`--base-from`).

use hindcast_pg::DatabaseUrl;
use hindcast_standby::mark::{Mark, MarkError, Marker, There};

use crate::error::CliError;

/// A backup of the recorded database, which a follower keeps.
pub struct Backup {
    from: DatabaseUrl,
    to: DatabaseUrl,
    /// None after an error: made anew.
    marker: Option<Marker>,
}

impl Backup {
    /// # Errors
    /// If no base could be read from it.
    pub async fn of(from: &DatabaseUrl, to: &DatabaseUrl) -> Result<Self, CliError> {
        let mut backup = Self {
            from: from.clone(),
            to: to.clone(),
            marker: None,
        };
        let made = backup.with_marker(|_| Ok(())).await;
        made.map_err(|error| {
            let message = format!("no base can be read from {to}");
            CliError::because(message, &error).hint(error.hint())
        })?;
        Ok(backup)
    }

    pub fn url(&self) -> &DatabaseUrl {
        &self.to
    }

    /// See [`Marker::mark`].
    pub async fn mark(&mut self, snapshot: &str) -> Result<Option<Mark>, MarkError> {
        let snapshot = snapshot.to_owned();
        self.with_marker(move |marker| marker.mark(&snapshot)).await
    }

    /// See [`Marker::there`].
    pub async fn there(&mut self, mark: &Mark, exported: &str) -> Result<There, MarkError> {
        let (mark, exported) = (mark.clone(), exported.to_owned());
        self.with_marker(move |marker| marker.there(&mark, &exported))
            .await
    }

    /// The library blocks; the runtime's threads must not.
    async fn with_marker<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Marker) -> Result<T, MarkError> + Send + 'static,
    ) -> Result<T, MarkError> {
        let (marker, from, to) = (self.marker.take(), self.from.clone(), self.to.clone());
        let done = tokio::task::spawn_blocking(move || {
            let mut marker = match marker {
                Some(marker) => marker,
                None => Marker::new(&from, &to)?,
            };
            let done = work(&mut marker)?;
            Ok::<_, MarkError>((marker, done))
        });
        let (marker, done) = done
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        self.marker = Some(marker);
        Ok(done)
    }
}
