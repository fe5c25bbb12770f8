package stompkit.spring;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.springframework.context.event.EventListener;
import org.springframework.messaging.simp.broker.BrokerAvailabilityEvent;
import org.springframework.stereotype.Component;
import org.springframework.web.socket.messaging.SessionConnectedEvent;
import org.springframework.web.socket.messaging.SessionDisconnectEvent;

/** What Spring has published about the broker and about sessions, in order. */
@Component
public class Observations {

  private final List<Boolean> availability = new CopyOnWriteArrayList<>();
  private final List<String> connected = new CopyOnWriteArrayList<>();
  private final List<String> disconnected = new CopyOnWriteArrayList<>();

  @EventListener
  void on(BrokerAvailabilityEvent event) {
    availability.add(event.isBrokerAvailable());
  }

  @EventListener
  void on(SessionConnectedEvent event) {
    connected.add(event.getUser() == null ? "" : event.getUser().getName());
  }

  @EventListener
  void on(SessionDisconnectEvent event) {
    disconnected.add(event.getUser() == null ? "" : event.getUser().getName());
  }

  List<Boolean> availability() {
    return availability;
  }

  List<String> connected() {
    return connected;
  }

  List<String> disconnected() {
    return disconnected;
  }
}
