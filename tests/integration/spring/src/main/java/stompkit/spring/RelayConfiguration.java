package stompkit.spring;

import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import java.io.File;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import javax.net.ssl.SSLException;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Lazy;
import org.springframework.messaging.simp.config.ChannelRegistration;
import org.springframework.messaging.simp.config.MessageBrokerRegistry;
import org.springframework.messaging.simp.config.StompBrokerRelayRegistration;
import org.springframework.messaging.simp.stomp.StompReactorNettyCodec;
import org.springframework.messaging.tcp.reactor.ReactorNettyTcpClient;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.util.AntPathMatcher;
import org.springframework.web.socket.config.annotation.EnableWebSocketMessageBroker;
import org.springframework.web.socket.config.annotation.StompEndpointRegistry;
import org.springframework.web.socket.config.annotation.WebSocketMessageBrokerConfigurer;
import org.springframework.web.socket.config.annotation.WebSocketTransportRegistration;
import reactor.netty.tcp.TcpClient;

/** STOMP for browsers at {@code /websocket} and, with SockJS, {@code /sockjs}; a relay behind. */
@Configuration
@EnableWebSocketMessageBroker
@EnableConfigurationProperties(Relay.class)
public class RelayConfiguration implements WebSocketMessageBrokerConfigurer {

  private static final int MEBIBYTE = 1024 * 1024;

  private final Relay relay;
  private final TaskScheduler scheduler;

  public RelayConfiguration(Relay relay, @Lazy TaskScheduler messageBrokerTaskScheduler) {
    this.relay = relay;
    this.scheduler = messageBrokerTaskScheduler;
  }

  @Override
  public void registerStompEndpoints(StompEndpointRegistry registry) {
    registry.addEndpoint("/websocket").setAllowedOriginPatterns("*");
    registry.addEndpoint("/sockjs").setAllowedOriginPatterns("*").withSockJS();
  }

  @Override
  public void configureWebSocketTransport(WebSocketTransportRegistration registration) {
    registration.setMessageSizeLimit(MEBIBYTE).setSendBufferSizeLimit(4 * MEBIBYTE);
  }

  @Override
  public void configureMessageBroker(MessageBrokerRegistry registry) {
    registry.setApplicationDestinationPrefixes("/app");
    registry.setPathMatcher(new AntPathMatcher("."));
    registry.setPreservePublishOrder(true);
    StompBrokerRelayRegistration broker =
        registry
            .enableStompBrokerRelay(
                "/topic/", "/queue/", "/exchange/", "/amq/queue/", "/temp-queue/", "/reply-queue/")
            .setSystemLogin(relay.login())
            .setSystemPasscode(relay.passcode())
            .setClientLogin(relay.clientLogin())
            .setClientPasscode(relay.clientPasscode())
            .setSystemHeartbeatSendInterval(relay.heartBeat())
            .setSystemHeartbeatReceiveInterval(relay.heartBeat())
            // Without it a client that sends to the application only is silent for the broker.
            .setTaskScheduler(scheduler);
    if (relay.broadcast()) {
      broker
          .setUserDestinationBroadcast("/topic/unresolved-user-destination")
          .setUserRegistryBroadcast("/topic/user-registry");
    }
    if (relay.virtualHost() != null) {
      broker.setVirtualHost(relay.virtualHost());
    }
    if (relay.addresses().size() == 1 && relay.certificate() == null) {
      InetSocketAddress address = address(relay.addresses().get(0));
      broker.setRelayHost(address.getHostString()).setRelayPort(address.getPort());
    } else {
      broker.setTcpClient(
          new ReactorNettyTcpClient<>(this::connectedToBroker, new StompReactorNettyCodec()));
    }
  }

  @Override
  public void configureClientInboundChannel(ChannelRegistration registration) {
    registration.interceptors(new Sessions());
  }

  private TcpClient connectedToBroker(TcpClient client) {
    TcpClient addressed = client.remoteAddress(inTurn(relay.addresses()));
    if (relay.certificate() == null) {
      return addressed;
    }
    SslContext context = sslContext(new File(relay.certificate()));
    return addressed.secure(spec -> spec.sslContext(context));
  }

  private static Supplier<SocketAddress> inTurn(List<String> addresses) {
    AtomicInteger attempts = new AtomicInteger();
    return () -> address(addresses.get(attempts.getAndIncrement() % addresses.size()));
  }

  private static InetSocketAddress address(String text) {
    int colon = text.lastIndexOf(':');
    String host = text.substring(0, colon);
    return new InetSocketAddress(host, Integer.parseInt(text.substring(colon + 1)));
  }

  private static SslContext sslContext(File authority) {
    try {
      return SslContextBuilder.forClient().trustManager(authority).build();
    } catch (SSLException error) {
      throw new IllegalArgumentException(error);
    }
  }
}
