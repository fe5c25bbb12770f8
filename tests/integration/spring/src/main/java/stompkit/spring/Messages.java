package stompkit.spring;

import java.security.Principal;
import java.util.Map;
import org.springframework.messaging.handler.annotation.DestinationVariable;
import org.springframework.messaging.handler.annotation.MessageExceptionHandler;
import org.springframework.messaging.handler.annotation.MessageMapping;
import org.springframework.messaging.handler.annotation.Payload;
import org.springframework.messaging.handler.annotation.SendTo;
import org.springframework.messaging.simp.annotation.SendToUser;
import org.springframework.messaging.simp.annotation.SubscribeMapping;
import org.springframework.stereotype.Controller;

/** Handlers of messages to the application: destinations that begin with {@code /app/}. */
@Controller
public class Messages {

  /** A message in JSON. */
  public record Text(String text) {}

  /** Broadcast to a room; the dots of the destination are levels, as in the broker. */
  @MessageMapping("room.{name}")
  @SendTo("/topic/room.{name}")
  public Text say(@DestinationVariable String name, @Payload Text message) {
    return new Text(name + ": " + message.text());
  }

  /** Answer all sessions of the sender. */
  @MessageMapping("answer.all")
  @SendToUser("/queue/answers")
  public Text answerAll(@Payload Text message, Principal user) {
    return new Text(user.getName() + ": " + message.text());
  }

  /** Answer the session that has sent the message, which may have no user. */
  @MessageMapping("answer.one")
  @SendToUser(destinations = "/queue/answers", broadcast = false)
  public Text answerOne(@Payload Text message) {
    return new Text("only you: " + message.text());
  }

  /** Answer a subscription at once, without the broker. */
  @SubscribeMapping("greeting")
  public Text greeting() {
    return new Text("hello");
  }

  /** Send nothing. */
  @MessageMapping("ignore")
  public void ignore(@Payload Map<String, Object> message) {}

  /** Fail. */
  @MessageMapping("fail")
  public void fail(@Payload Text message) {
    throw new IllegalArgumentException(message.text());
  }

  /** Send an error to the session whose message was the cause. */
  @MessageExceptionHandler
  @SendToUser(destinations = "/queue/errors", broadcast = false)
  public Text failed(IllegalArgumentException error) {
    return new Text("failed: " + error.getMessage());
  }
}
