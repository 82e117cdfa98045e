package org.apache.pekko.dispatch;

import org.apache.pekko.actor.ActorRef;

/** In the place of Pekko's: what was sent, and by whom. */
public final class Envelope {
    public final Object message;
    public final ActorRef sender;

    public Envelope(Object message, ActorRef sender) {
        this.message = message;
        this.sender = sender;
    }
}
