package stompkit.spring;

import java.security.Principal;
import java.util.regex.Pattern;
import org.springframework.messaging.Message;
import org.springframework.messaging.MessageChannel;
import org.springframework.messaging.MessageDeliveryException;
import org.springframework.messaging.simp.stomp.StompCommand;
import org.springframework.messaging.simp.stomp.StompHeaderAccessor;
import org.springframework.messaging.support.ChannelInterceptor;
import org.springframework.messaging.support.MessageHeaderAccessor;

/**
 * Who the user of a session is, and what it may subscribe to.
 *
 * <p>Here a page says who it is; an application takes the user of the HTTP session.
 */
class Sessions implements ChannelInterceptor {

  /** The destination of another user's session, by its name or by a wildcard. */
  private static final Pattern FORBIDDEN = Pattern.compile("/queue/.*(-user|[*>#]).*");

  @Override
  public Message<?> preSend(Message<?> message, MessageChannel channel) {
    StompHeaderAccessor accessor =
        MessageHeaderAccessor.getAccessor(message, StompHeaderAccessor.class);
    if (accessor == null) {
      return message;
    }
    StompCommand command = accessor.getCommand();
    if (StompCommand.CONNECT.equals(command) && accessor.getLogin() != null) {
      accessor.setUser(new User(accessor.getLogin()));
    }
    String destination = accessor.getDestination();
    if (StompCommand.SUBSCRIBE.equals(command)
        && destination != null
        && FORBIDDEN.matcher(destination).matches()) {
      throw new MessageDeliveryException(message, "You may not subscribe to " + destination);
    }
    return message;
  }

  private record User(String name) implements Principal {
    @Override
    public String getName() {
      return name;
    }
  }
}
