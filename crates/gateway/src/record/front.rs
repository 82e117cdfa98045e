//! How requests and transactions come to the recorder.

use std::sync::Arc;
use std::time::Duration;

use hindcast_pg::ListenAddress;
use hindcast_spool::{Drain, Meter, Reader, SharedBoard, Writer, spool};
use hindcast_taplog::board::Purpose;
use hindcast_trace::Id;

use super::error::RecordError;
use super::kept::{About, Kept};
use super::sink::Sink;
use super::{RecordOptions, Threads};
use crate::http::{Ingress, IngressOptions, ServiceUrl, Witness};
use crate::inside::{self, Gates, Inside, InsideEnd, InsideOptions, Sessions};
use crate::listen::{BindError, Listener, Listeners};
use crate::redact::Redactor;

/// How requests and transactions come to the recorder.
#[derive(Clone, Debug)]
pub enum Front {
    /// By two addresses that are given in place of those of the service and of its database.
    Proxies(Proxies),
    /// The service's own process tells of requests: see [`Started::tap`](super::Started::tap).
    Inside(Transactions),
}

/// How transactions come to the recorder of a service that tells of its requests itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transactions {
    /// The service connects to the recorder in place of its database.
    Gateway,
    /// The service's process tells what it asked and was answered, and the extension in the
    /// database what that saw. Nothing is in between.
    Extension,
}

/// How a service is started.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// Program and arguments; empty: by somebody else.
    pub command: Vec<String>,
    pub directory: String,
    /// `NAME=value`, or `NAME` alone if the value is not to be kept.
    pub environment: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Proxies {
    pub listen: ListenAddress,
    pub service: ServiceUrl,
    /// Speak HTTP/2 with the service.
    pub service_http2: bool,
    pub pg_listen: ListenAddress,
}

/// What has been bound. Nothing is served yet.
pub(super) enum Bound {
    Proxies {
        http: Listener,
        pg: Listener,
        proxies: Proxies,
    },
    /// With gates if the service's sessions are to come through us.
    Inside(Option<Gates>),
}

/// What is served.
pub(super) struct Served {
    pub requests: Requests,
    /// Where transactions come, if they do.
    pub listeners: Option<Listeners>,
    /// What the service's processes share with us, and what they must have in their environment.
    pub board: Option<Arc<SharedBoard>>,
    pub tap: Option<Variable>,
    /// Where it stands what they told.
    pub spool: Option<Writer>,
    /// If another process can go on with that.
    pub kept: Option<Kept>,
}

/// What is recorded, and what of it is told to who goes on if we are killed.
pub(super) struct Whole<'a> {
    pub options: &'a RecordOptions,
    pub sink: &'a Arc<Sink>,
    pub redactor: &'a Arc<Redactor>,
    pub about: &'a About,
}

/// Where requests come from.
pub(super) enum Requests {
    Ingress(Ingress),
    Inside {
        inside: Inside,
        /// Of the gate's socket.
        _folder: Option<tempfile::TempDir>,
    },
}

impl Front {
    /// An ingress in front of the service and a gateway behind it.
    pub fn proxies_of(
        listen: ListenAddress,
        service: ServiceUrl,
        pg_listen: ListenAddress,
    ) -> Self {
        Self::Proxies(Proxies {
            listen,
            service,
            service_http2: false,
            pg_listen,
        })
    }

    pub(super) async fn bind(&self) -> Result<Bound, BindError> {
        Ok(match self {
            Self::Proxies(proxies) => Bound::Proxies {
                http: Listener::bind(&proxies.listen).await?,
                pg: Listener::bind(&proxies.pg_listen).await?,
                proxies: proxies.clone(),
            },
            Self::Inside(Transactions::Gateway) => Bound::Inside(Some(Gates::open().await?)),
            Self::Inside(Transactions::Extension) => Bound::Inside(None),
        })
    }

    pub(super) fn proxies(&self) -> Option<&Proxies> {
        match self {
            Self::Proxies(proxies) => Some(proxies),
            Self::Inside(_) => None,
        }
    }
}

impl Bound {
    /// Where clients connect, if it is to us.
    pub fn listen(&self) -> Option<ListenAddress> {
        match self {
            Self::Proxies { http, .. } => Some(http.address()),
            Self::Inside(_) => None,
        }
    }

    pub fn pg_listen(&self) -> Option<ListenAddress> {
        match self {
            Self::Proxies { pg, .. } => Some(pg.address()),
            Self::Inside(gates) => Some(gates.as_ref()?.listeners[0].address()),
        }
    }

    /// Begins to take requests.
    pub fn serve(
        self,
        whole: &Whole<'_>,
        threads: &Threads,
        sessions: Option<Box<dyn Sessions>>,
    ) -> Result<Served, RecordError> {
        let Whole {
            options,
            sink,
            redactor,
            ..
        } = *whole;
        let (witness, redactor) = (Arc::clone(sink) as Arc<dyn Witness>, Arc::clone(redactor));
        let gates = match self {
            Self::Inside(gates) => gates,
            Self::Proxies { http, pg, proxies } => {
                let ingress = IngressOptions {
                    listen: proxies.listen,
                    service: proxies.service,
                    service_http2: proxies.service_http2,
                    limits: options.limits,
                    redactor,
                    runtimes: threads.handles.clone(),
                };
                return Ok(Served {
                    requests: Requests::Ingress(Ingress::serve(http, ingress, witness)),
                    listeners: Some(Listeners(vec![pg])),
                    board: None,
                    spool: None,
                    kept: None,
                    tap: None,
                });
            }
        };
        let purpose = Purpose::Record {
            first: Id::new(sink.recorder(), 1).0,
        };
        let redirect = inside::redirect(&options.postgres, gates.as_ref());
        let board = SharedBoard::make(purpose, &redirect).map_err(RecordError::Tap)?;
        let board = Arc::new(board);
        if let Some(key) = options.pins_key {
            board.pins().set_key(&key.0);
            board.starts().set_key(&key.0);
        }
        let drain = Drain::with_board(Arc::clone(&board)).map_err(RecordError::Tap)?;
        let (spool, reader, kept) = whole.spool()?;
        let tap = drain.variable();
        let numbers = Arc::clone(&board);
        let numbers = move || numbers.take_number();
        let inside = InsideOptions {
            limits: options.limits,
            redactor,
            numbers: match &kept {
                Some(kept) => kept.numbers(numbers).map_err(RecordError::Tap)?,
                None => Box::new(numbers),
            },
            sessions,
        };
        let inside = Inside::start(drain, (spool.clone(), reader), witness, inside);
        let inside = inside.map_err(RecordError::Tap)?;
        let (listeners, _folder) = gates.map(Gates::into_parts).unzip();
        Ok(Served {
            requests: Requests::Inside { inside, _folder },
            listeners,
            board: Some(board),
            spool: Some(spool),
            kept,
            tap: Some(tap),
        })
    }
}

impl Whole<'_> {
    /// Where what is told waits, and whether somebody else can read that.
    fn spool(&self) -> Result<(Writer, Reader, Option<Kept>), RecordError> {
        let (sink, limit) = (self.sink, self.options.spool_max);
        let Some(recipient) = &self.options.spool_for else {
            let (writer, reader) = spool(sink.folder(), limit)?;
            return Ok((writer, reader, None));
        };
        let kept = Kept::new(sink.spool_folder());
        let (writer, reader) = self.about.spool(kept.folder(), limit, recipient)?;
        Ok((writer, reader, Some(kept)))
    }
}

/// A variable of the environment.
pub type Variable = (&'static str, String);

impl Requests {
    /// Tells how much is in the spool, if there is one.
    pub fn meter(&self) -> Option<Meter> {
        match self {
            Self::Ingress(_) => None,
            Self::Inside { inside, .. } => Some(inside.meter()),
        }
    }

    /// Takes no more, and lets those in flight end.
    pub async fn stop(self, patience: Duration) -> Option<InsideEnd> {
        match self {
            Self::Ingress(ingress) => {
                ingress.shut_down(patience).await;
                None
            }
            Self::Inside { inside, .. } => {
                let stopped = tokio::task::spawn_blocking(move || inside.stop());
                Some(stopped.await.expect("stopping does not panic"))
            }
        }
    }
}
