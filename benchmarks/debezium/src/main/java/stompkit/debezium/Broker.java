package stompkit.debezium;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;

/**
 * Publishes events to a STOMP broker: as many in a frame as fit, one event a line, and at least one.
 * Each frame has a receipt. It costs as little as possible, so that the figures are those of the
 * engine.
 */
final class Broker implements Target {

  private static final int BUFFER_BYTES = 65_536;

  private final Socket socket;
  private final OutputStream output;
  private final InputStream input;
  private final String destination;
  private final int most;
  private final ByteArrayOutputStream body = new ByteArrayOutputStream();
  private int waiting;

  Broker(int port, String destination, int most) throws IOException {
    this.destination = destination;
    this.most = most;
    socket = new Socket(InetAddress.getLoopbackAddress(), port);
    socket.setTcpNoDelay(true);
    output = new BufferedOutputStream(socket.getOutputStream(), BUFFER_BYTES);
    input = new BufferedInputStream(socket.getInputStream());
    output.write("CONNECT\naccept-version:1.2\nhost:localhost\n\n\0".getBytes(UTF_8));
    output.flush();
    expect("CONNECTED");
  }

  @Override
  public void add(byte[] event) {
    if (body.size() + event.length + 1 > most) {
      send();
    }
    body.writeBytes(event);
    body.write('\n');
  }

  @Override
  public void flush() {
    send();
    try {
      output.flush();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    while (waiting > 0) {
      expect("RECEIPT");
      waiting--;
    }
  }

  @Override
  public void close() {
    try {
      socket.close();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private void send() {
    if (body.size() == 0) {
      return;
    }
    String head =
        "SEND\ndestination:" + destination
            + "\ncontent-type:application/json\npersistent:true\nreceipt:" + waiting
            + "\ncontent-length:" + body.size() + "\n\n";
    try {
      output.write(head.getBytes(UTF_8));
      body.write(0);
      body.writeTo(output);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    body.reset();
    waiting++;
  }

  /** Reads a frame without a body. */
  private void expect(String command) {
    var frame = new ByteArrayOutputStream();
    try {
      for (int each = input.read(); each != 0; each = input.read()) {
        if (each < 0) {
          throw new IOException("the broker has closed the connection");
        }
        frame.write(each);
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    String text = frame.toString(UTF_8).strip();
    if (!text.startsWith(command + "\n")) {
      throw new IllegalStateException("not " + command + " but: " + text);
    }
  }
}
