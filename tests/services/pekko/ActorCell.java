package org.apache.pekko.actor;

import org.apache.pekko.dispatch.Envelope;

/** In the place of Pekko's: works off what was sent to an actor. */
public class ActorCell {
    public final void invoke(Envelope envelope) {
        ((Runnable) envelope.message).run();
    }
}
