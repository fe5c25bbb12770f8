package stompkit.spring;

import jakarta.websocket.ContainerProvider;
import java.lang.reflect.Type;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.springframework.messaging.MessagingException;
import org.springframework.messaging.converter.SimpleMessageConverter;
import org.springframework.messaging.simp.stomp.ConnectionLostException;
import org.springframework.messaging.simp.stomp.ReactorNettyTcpStompClient;
import org.springframework.messaging.simp.stomp.StompClientSupport;
import org.springframework.messaging.simp.stomp.StompCommand;
import org.springframework.messaging.simp.stomp.StompFrameHandler;
import org.springframework.messaging.simp.stomp.StompHeaders;
import org.springframework.messaging.simp.stomp.StompSession;
import org.springframework.messaging.simp.stomp.StompSessionHandlerAdapter;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.web.socket.WebSocketHttpHeaders;
import org.springframework.web.socket.client.standard.StandardWebSocketClient;
import org.springframework.web.socket.messaging.WebSocketStompClient;

/** Spring's STOMP client, connected to the broker by TCP or WebSocket. */
final class Client implements AutoCloseable {

  private static final long DEADLINE_S = 30;

  private final BlockingQueue<Map<String, Object>> received = new LinkedBlockingQueue<>();
  private final BlockingQueue<Map<String, Object>> ended = new LinkedBlockingQueue<>();
  private final ThreadPoolTaskScheduler scheduler = new ThreadPoolTaskScheduler();
  private final StompSession session;
  private final Runnable stop;

  private Client(Connector connector) throws Exception {
    scheduler.initialize();
    Handler handler = new Handler();
    Started started = connector.start(scheduler, handler);
    stop = started.stop();
    session = started.session().get(DEADLINE_S, TimeUnit.SECONDS);
  }

  /** Connect by TCP. */
  static Client tcp(String host, int port, StompHeaders headers, long[] heartBeat)
      throws Exception {
    return new Client(
        (scheduler, handler) -> {
          ReactorNettyTcpStompClient client = new ReactorNettyTcpStompClient(host, port);
          prepare(client, scheduler, heartBeat);
          return new Started(client.connectAsync(headers, handler), client::shutdown);
        });
  }

  /**
   * Connect by WebSocket, with a limit of a text message in bytes; 0 leaves Tomcat's, 8 KiB.
   */
  static Client webSocket(String url, int limit, StompHeaders headers, long[] heartBeat)
      throws Exception {
    return new Client(
        (scheduler, handler) -> {
          var container = ContainerProvider.getWebSocketContainer();
          if (limit > 0) {
            container.setDefaultMaxTextMessageBufferSize(limit);
            container.setDefaultMaxBinaryMessageBufferSize(limit);
          }
          WebSocketStompClient client =
              new WebSocketStompClient(new StandardWebSocketClient(container));
          client.setInboundMessageSizeLimit(4 * 1024 * 1024);
          prepare(client, scheduler, heartBeat);
          client.start();
          WebSocketHttpHeaders http = new WebSocketHttpHeaders();
          var session = client.connectAsync(url, http, headers, handler);
          return new Started(session, client::stop);
        });
  }

  private static void prepare(
      StompClientSupport client, ThreadPoolTaskScheduler scheduler, long[] heartBeat) {
    client.setMessageConverter(new SimpleMessageConverter());
    client.setTaskScheduler(scheduler);
    client.setDefaultHeartbeat(heartBeat);
    client.setReceiptTimeLimit(TimeUnit.SECONDS.toMillis(DEADLINE_S));
  }

  void subscribe(StompHeaders headers) throws Exception {
    received(session.subscribe(headers, new Messages()));
  }

  void send(StompHeaders headers, byte[] body) throws Exception {
    received(session.send(headers, body));
  }

  void acknowledge(String id, boolean consumed) throws Exception {
    StompHeaders headers = new StompHeaders();
    headers.setId(id);
    headers.setReceipt("ack-" + id);
    received(session.acknowledge(headers, consumed));
  }

  /** The next message; null if the connection has ended. */
  Map<String, Object> receive() throws InterruptedException {
    return received.poll(DEADLINE_S, TimeUnit.SECONDS);
  }

  /** How the connection has ended: the headers of ERROR, or the exception. */
  Map<String, Object> end() throws InterruptedException {
    return ended.poll(DEADLINE_S, TimeUnit.SECONDS);
  }

  boolean isConnected() {
    return session.isConnected();
  }

  @Override
  public void close() {
    try {
      if (session.isConnected()) {
        session.disconnect();
      }
    } catch (IllegalStateException | MessagingException ended) {
      // The broker has closed the connection in the meantime.
    }
    stop.run();
    scheduler.shutdown();
  }

  /** Wait for the receipt if one was asked for. */
  private static void received(StompSession.Receiptable frame) throws Exception {
    if (frame.getReceiptId() == null) {
      return;
    }
    CompletableFuture<Void> receipt = new CompletableFuture<>();
    frame.addReceiptTask(() -> receipt.complete(null));
    frame.addReceiptLostTask(() -> receipt.completeExceptionally(new Exception("receipt lost")));
    receipt.get(DEADLINE_S, TimeUnit.SECONDS);
  }

  private static Map<String, Object> frame(StompHeaders headers, Object payload) {
    Map<String, Object> frame = new LinkedHashMap<>();
    frame.put("headers", headers.toSingleValueMap());
    byte[] body = payload == null ? new byte[0] : (byte[]) payload;
    frame.put("body", Base64.getEncoder().encodeToString(body));
    return frame;
  }

  private interface Connector {
    Started start(ThreadPoolTaskScheduler scheduler, Handler handler);
  }

  private record Started(CompletableFuture<StompSession> session, Runnable stop) {}

  private final class Messages implements StompFrameHandler {
    @Override
    public Type getPayloadType(StompHeaders headers) {
      return byte[].class;
    }

    @Override
    public void handleFrame(StompHeaders headers, Object payload) {
      received.add(frame(headers, payload));
    }
  }

  private final class Handler extends StompSessionHandlerAdapter {
    @Override
    public Type getPayloadType(StompHeaders headers) {
      return byte[].class;
    }

    @Override
    public void handleFrame(StompHeaders headers, Object payload) {
      ended.add(frame(headers, payload));
    }

    @Override
    public void handleException(
        StompSession session,
        StompCommand command,
        StompHeaders headers,
        byte[] payload,
        Throwable exception) {
      ended.add(Map.of("exception", exception.toString()));
    }

    @Override
    public void handleTransportError(StompSession session, Throwable exception) {
      boolean isLost = exception instanceof ConnectionLostException;
      ended.add(Map.of(isLost ? "lost" : "exception", exception.toString()));
    }
  }
}
