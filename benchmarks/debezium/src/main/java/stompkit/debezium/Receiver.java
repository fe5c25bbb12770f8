package stompkit.debezium;

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine.ChangeConsumer;
import io.debezium.engine.DebeziumEngine.RecordCommitter;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Receives the batches of the engine, counts their events, and passes them to a target. */
final class Receiver implements ChangeConsumer<ChangeEvent<byte[], byte[]>> {

  private static final long DEADLINE_MINUTES = 10;

  private final long wanted;
  private final Target target;
  private final CountDownLatch done = new CountDownLatch(1);
  private long rows;
  private long bytes;
  private long firstRows;
  private Usage first;
  private Usage last;
  private volatile String failure;

  Receiver(long wanted, Target target) {
    this.wanted = wanted;
    this.target = target;
  }

  @Override
  public void handleBatch(
      List<ChangeEvent<byte[], byte[]>> events,
      RecordCommitter<ChangeEvent<byte[], byte[]>> committer)
      throws InterruptedException {
    for (ChangeEvent<byte[], byte[]> event : events) {
      bytes += event.value().length;
      rows++;
      target.add(event.value());
    }
    // Events are marked when the target has them.
    target.flush();
    for (ChangeEvent<byte[], byte[]> event : events) {
      committer.markProcessed(event);
    }
    committer.markBatchFinished();
    if (first == null) {
      firstRows = rows;
      first = Usage.now();
    }
    if (rows >= wanted && last == null) {
      last = Usage.now();
      done.countDown();
    }
  }

  /** Notes that the engine has ended; before the last row, it has failed. */
  void ended(String message, Throwable error) {
    failure = message + (error == null ? "" : ": " + error);
    done.countDown();
  }

  /** Waits until the target has all rows. */
  void await() throws InterruptedException {
    boolean isInTime = done.await(DEADLINE_MINUTES, TimeUnit.MINUTES);
    if (last == null || rows != wanted) {
      String reason = isInTime ? failure : "the time is over";
      throw new IllegalStateException(rows + " of " + wanted + " rows: " + reason);
    }
  }

  long bytes() {
    return bytes;
  }

  long firstRows() {
    return firstRows;
  }

  Usage first() {
    return first;
  }

  Usage last() {
    return last;
  }
}
