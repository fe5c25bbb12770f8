package stompkit.debezium;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Map;

/** The CPU time of this process, with all of its threads, and the clock; in nanoseconds. */
record Usage(long cpu, long clock) {

  private static final OperatingSystemMXBean SYSTEM =
      ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);

  static Usage now() {
    return new Usage(SYSTEM.getProcessCpuTime(), System.nanoTime());
  }

  /** Returns the seconds since an earlier moment. */
  Map<String, Double> since(Usage before) {
    return Map.of("cpu_s", (cpu - before.cpu) / 1e9, "elapsed_s", (clock - before.clock) / 1e9);
  }
}
