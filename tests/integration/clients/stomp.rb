# A client on the gem stomp for ../test_foreign_clients.py; driver.py says what goes in and out.
require "json"
require "stomp"

host, port, version, heart_beat = ARGV
$stdout.sync = true

# One connection, and what it has received.
class Session
  def initialize(host, port, version, heart_beat)
    login = {"accept-version": version, host: host, "heart-beat": heart_beat}
    @connection = Stomp::Connection.new(
      hosts: [{host: host, port: Integer(port)}],
      reliable: false,
      connect_headers: version == "1.0" ? {} : login
    )
    @messages = [] # arrived while something else was waited for
    @delivered = {} # those that can be acknowledged, by message-id
    @beats = 0
  end

  def connected
    printable(@connection.connection_frame)
  end

  def receive
    printable(@messages.shift || @connection.receive)
  end

  # The gem counts a beat when nobody is reading.
  def beat
    sleep 0.05 until @connection.hbrecv_count > @beats
    @beats += 1
    nil
  end

  # Call a method of the gem's, and wait for the receipt if there is to be one.
  def call(name, headers, call)
    case name
    when "send"
      @connection.publish(headers.delete(:destination), body(call), headers)
    when "subscribe", "unsubscribe"
      @connection.public_send(name, headers.delete(:destination), headers)
    when "ack", "nack"
      acknowledge(name, @delivered.fetch(call["message"]), headers)
    when "begin", "commit", "abort"
      @connection.public_send(name, headers.delete(:transaction), headers)
    end
    printable(answer) if headers[:receipt]
  end

  def disconnect(headers)
    @connection.disconnect(headers)
    printable(@connection.disconnect_receipt)
  end

  private

  def body(call)
    call["text"] || call["octets"].unpack1("m0")
  end

  # What ACK and NACK have to name depends on the version.
  def acknowledge(verb, message, headers)
    name = @connection.protocol == Stomp::SPL_12 ? "ack" : "message-id"
    if @connection.protocol == Stomp::SPL_11
      headers = headers.merge(subscription: message.headers["subscription"])
    end
    @connection.public_send(verb, message.headers[name], headers)
  end

  # The next frame that is no message.
  def answer
    while (frame = @connection.receive)
      return frame if frame.command != "MESSAGE"
      @messages << frame
    end
  end

  def printable(frame)
    return if frame.nil?
    @delivered[frame.headers["message-id"]] = frame if frame.command == "MESSAGE"
    headers = frame.headers.to_h { |name, value| [text(name), text(value)] }
    {command: frame.command, headers: headers, body: [frame.body].pack("m0")}
  end

  # In 1.0 the gem leaves headers as octets.
  def text(octets)
    octets.dup.force_encoding("UTF-8")
  end
end

session = Session.new(host, port, version, heart_beat)
puts JSON.generate(session.connected)
while (line = $stdin.gets)
  call = JSON.parse(line)
  headers = call.fetch("headers", {}).transform_keys(&:to_sym)
  case call["call"]
  when "receive"
    frame = session.receive
    puts JSON.generate(frame)
    exit if frame.nil?
  when "beat"
    puts JSON.generate(session.beat)
  when "disconnect"
    puts JSON.generate(session.disconnect(headers))
    exit
  else
    puts JSON.generate(session.call(call["call"], headers, call))
  end
end
session.disconnect({})
