//! Actors of Pekko and of Akka, and futures of Scala.
//!
//! An actor works off what was sent to it, for now this request and now that one, in whichever
//! thread its dispatcher has. So it works for the request for which a message was sent. A stream
//! that serves a connection is an actor, too: it is sent what was read. What comes behind a future
//! is for the request that says so, and not for who completes it.

use super::class::Patch;
use super::class::code::{ALOAD_0, ALOAD_1};
use super::{goes_on, waits};

const TRANSFORMATION: &str = "scala/concurrent/impl/Promise$Transformation";

pub const PATCHES: [Patch; 6] = [
    waits(
        "org/apache/pekko/dispatch/Envelope",
        "(Ljava/lang/Object;Lorg/apache/pekko/actor/ActorRef;)V",
    ),
    goes_on(
        "org/apache/pekko/actor/ActorCell",
        "invoke",
        "(Lorg/apache/pekko/dispatch/Envelope;)V",
        &[ALOAD_1],
    ),
    waits(
        "akka/dispatch/Envelope",
        "(Ljava/lang/Object;Lakka/actor/ActorRef;)V",
    ),
    goes_on(
        "akka/actor/ActorCell",
        "invoke",
        "(Lakka/dispatch/Envelope;)V",
        &[ALOAD_1],
    ),
    waits(
        TRANSFORMATION,
        "(Lscala/Function1;Lscala/concurrent/ExecutionContext;Lscala/util/Try;I)V",
    ),
    goes_on(TRANSFORMATION, "run", "()V", &[ALOAD_0]),
];
