package org.apache.pekko.actor;

/** In the place of Pekko's: to whom something is sent. */
public class ActorRef {}
