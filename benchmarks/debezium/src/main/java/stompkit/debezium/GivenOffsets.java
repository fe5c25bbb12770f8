package stompkit.debezium;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;

/** Offsets in memory that begin at a position of the settings, so that rows can be read again. */
public final class GivenOffsets extends MemoryOffsetBackingStore {

  @Override
  public void configure(WorkerConfig config) {
    super.configure(config);
    Map<String, String> settings = config.originalsStrings();
    String key = settings.get("offset.given.key");
    if (key != null) {
      data.put(wrap(key), wrap(settings.get("offset.given.value")));
    }
  }

  @Override
  public Set<Map<String, Object>> connectorPartitions(String connector) {
    return Set.of();
  }

  private static ByteBuffer wrap(String text) {
    return ByteBuffer.wrap(text.getBytes(UTF_8));
  }
}
