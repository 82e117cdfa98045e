package reactor.core;

/** What is given something, as Reactor's is called. */
public interface CoreSubscriber<T> {
    void onNext(T value);
}
