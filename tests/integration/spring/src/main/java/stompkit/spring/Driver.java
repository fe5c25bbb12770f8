package stompkit.spring;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.messaging.simp.SimpMessagingTemplate;
import org.springframework.messaging.simp.stomp.StompBrokerRelayMessageHandler;
import org.springframework.messaging.simp.stomp.StompHeaders;
import org.springframework.messaging.simp.user.SimpUser;
import org.springframework.messaging.simp.user.SimpUserRegistry;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/**
 * Reads calls from the standard input and answers each with one line; both are JSON. The log goes
 * to the standard error. {@code application.py} says what the calls are.
 */
public final class Driver {

  private final JsonMapper json = new JsonMapper();
  private final Map<String, ConfigurableApplicationContext> instances = new HashMap<>();
  private final Map<String, Client> clients = new HashMap<>();

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err);
    Driver driver = new Driver();
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      answers.println(driver.json.writeValueAsString(driver.answer(driver.json.readTree(line))));
      answers.flush();
    }
    driver.clients.values().forEach(Client::close);
    driver.instances.values().forEach(ConfigurableApplicationContext::close);
    System.exit(0);
  }

  private Map<String, Object> answer(JsonNode call) {
    Map<String, Object> answer = new LinkedHashMap<>();
    try {
      answer.put("result", perform(call));
    } catch (Exception error) {
      Throwable cause = error.getCause() == null ? error : error.getCause();
      answer.put("error", error + "; " + cause.getMessage());
    }
    return answer;
  }

  private Object perform(JsonNode call) throws Exception {
    String name = call.get("name").stringValue();
    String verb = call.get("call").stringValue();
    return verb.startsWith("client-") ? ofClient(verb, name, call) : ofInstance(verb, name, call);
  }

  private Object ofInstance(String verb, String name, JsonNode call) {
    if (verb.equals("start")) {
      return start(name, call.get("settings"));
    }
    if (verb.equals("stop")) {
      instances.remove(name).close();
      return null;
    }
    ConfigurableApplicationContext instance = instances.get(name);
    Observations observations = instance.getBean(Observations.class);
    var relay = instance.getBean(StompBrokerRelayMessageHandler.class);
    var template = instance.getBean("brokerMessagingTemplate", SimpMessagingTemplate.class);
    switch (verb) {
      case "send":
        template.convertAndSend(text(call, "destination"), new Messages.Text(text(call, "text")));
        return null;
      case "send-to-user":
        template.convertAndSendToUser(
            text(call, "user"),
            text(call, "destination"),
            new Messages.Text(text(call, "text")));
        return null;
      case "users":
        return users(instance.getBean(SimpUserRegistry.class));
      case "availability":
        return observations.availability();
      case "connected":
        return observations.connected();
      case "disconnected":
        return observations.disconnected();
      case "connections":
        return relay.getConnectionCount();
      default:
        throw new IllegalArgumentException(verb);
    }
  }

  private int start(String name, JsonNode settings) {
    List<String> arguments = new ArrayList<>(List.of("--server.port=0"));
    settings.forEachEntry((key, value) -> arguments.add("--" + key + "=" + value.asString()));
    var instance =
        new SpringApplicationBuilder(Application.class).run(arguments.toArray(String[]::new));
    instances.put(name, instance);
    return instance.getEnvironment().getRequiredProperty("local.server.port", Integer.class);
  }

  private static Map<String, Integer> users(SimpUserRegistry registry) {
    Map<String, Integer> sessions = new TreeMap<>();
    for (SimpUser user : registry.getUsers()) {
      sessions.put(user.getName(), user.getSessions().size());
    }
    return sessions;
  }

  private Object ofClient(String verb, String name, JsonNode call) throws Exception {
    Client client = clients.get(name);
    switch (verb) {
      case "client-connect":
        clients.put(name, connect(call));
        return null;
      case "client-subscribe":
        client.subscribe(headers(call));
        return null;
      case "client-send":
        client.send(headers(call), Base64.getDecoder().decode(text(call, "body")));
        return null;
      case "client-acknowledge":
        client.acknowledge(text(call, "id"), call.get("consumed").booleanValue());
        return null;
      case "client-receive":
        return client.receive();
      case "client-end":
        return client.end();
      case "client-is-connected":
        return client.isConnected();
      case "client-close":
        clients.remove(name).close();
        return null;
      default:
        throw new IllegalArgumentException(verb);
    }
  }

  private static Client connect(JsonNode call) throws Exception {
    JsonNode beats = call.get("heart-beat");
    long[] heartBeat = {beats.get(0).longValue(), beats.get(1).longValue()};
    if (call.has("url")) {
      int limit = call.get("limit").intValue();
      return Client.webSocket(text(call, "url"), limit, headers(call), heartBeat);
    }
    return Client.tcp(text(call, "host"), call.get("port").intValue(), headers(call), heartBeat);
  }

  private static StompHeaders headers(JsonNode call) {
    StompHeaders headers = new StompHeaders();
    call.get("headers").forEachEntry((name, value) -> headers.set(name, value.stringValue()));
    return headers;
  }

  private static String text(JsonNode call, String name) {
    return call.get(name).stringValue();
  }
}
