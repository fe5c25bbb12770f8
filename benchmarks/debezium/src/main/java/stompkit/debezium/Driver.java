package stompkit.debezium;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.JsonByteArray;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

/**
 * Reads calls from the standard input and answers each with one line; both are JSON. The log goes
 * to the standard error. Each call runs the engine once, in the same virtual machine, until it has
 * delivered all rows.
 *
 * <p>A call has the {@code settings} of the engine and the number of {@code rows}. With {@code
 * broker}, the events are also published: {@code port}, {@code destination} and the maximum {@code
 * frame} in bytes. {@code Answer} has the answer; an answer with {@code error} is a failure.
 */
public final class Driver {

  private final ObjectMapper json = new ObjectMapper();

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err);
    Driver driver = new Driver();
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      answers.println(driver.json.writeValueAsString(driver.answer(driver.json.readTree(line))));
      answers.flush();
    }
    System.exit(0);
  }

  private Map<String, Object> answer(JsonNode call) {
    try {
      return run(call);
    } catch (Exception error) {
      error.printStackTrace();
      return Map.of("error", error.toString());
    }
  }

  private Map<String, Object> run(JsonNode call) throws Exception {
    Properties settings = new Properties();
    call.get("settings")
        .fields()
        .forEachRemaining(each -> settings.setProperty(each.getKey(), each.getValue().asText()));
    Usage begin = Usage.now();
    try (Target target = target(call.get("broker"))) {
      Receiver receiver = new Receiver(call.get("rows").asLong(), target);
      DebeziumEngine<ChangeEvent<byte[], byte[]>> engine =
          DebeziumEngine.create(JsonByteArray.class)
              .using(settings)
              .notifying(receiver)
              .using((success, message, error) -> receiver.ended(message, error))
              .build();
      Thread thread = new Thread(engine, "engine");
      thread.start();
      receiver.await();
      engine.close();
      thread.join();
      Map<String, Object> answer = new LinkedHashMap<>();
      answer.put("bytes", receiver.bytes());
      answer.put("first_rows", receiver.firstRows());
      answer.put("first", receiver.first().since(begin));
      answer.put("all", receiver.last().since(begin));
      return answer;
    }
  }

  private static Target target(JsonNode broker) throws Exception {
    if (broker == null || broker.isNull()) {
      return new Nowhere();
    }
    return new Broker(
        broker.get("port").asInt(),
        broker.get("destination").asText(),
        broker.get("frame").asInt());
  }
}
