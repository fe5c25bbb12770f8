package stompkit.spring;

import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * Settings of the relay.
 *
 * @param addresses HOST:PORT of each broker; the relay tries them in turn
 * @param login login of the system connection
 * @param passcode passcode of that login
 * @param clientLogin login of the connections of pages; that of the system connection by default
 * @param clientPasscode passcode of that login
 * @param virtualHost value of CONNECT's {@code host} header
 * @param heartBeat interval of the system connection's heart-beats in both directions, in ms
 * @param certificate PEM file with the authority of the broker's certificate; turns TLS on
 * @param broadcast whether instances share user destinations and the registry of users
 */
@ConfigurationProperties("relay")
public record Relay(
    List<String> addresses,
    @DefaultValue("guest") String login,
    @DefaultValue("guest") String passcode,
    String clientLogin,
    String clientPasscode,
    String virtualHost,
    @DefaultValue("10000") long heartBeat,
    String certificate,
    @DefaultValue("true") boolean broadcast) {

  public Relay {
    clientLogin = clientLogin == null ? login : clientLogin;
    clientPasscode = clientPasscode == null ? passcode : clientPasscode;
  }
}
