package stompkit.debezium;

/** A receiver of events. */
interface Target extends AutoCloseable {

  void add(byte[] event);

  /** Returns when the target has all events. */
  void flush();

  @Override
  void close();
}
