# The agent for the gem stomp: ruby.rb HOST PORT CASE
require "stomp"

host, port, _case = ARGV
nodes = ENV.fetch("STOMPKIT_HOSTS", "#{host}:#{port}").split(",").map do |node|
  name, _, number = node.rpartition(":")
  {host: name, port: Integer(number), login: "guest", passcode: "gu:e\\st"}
end
connection = Stomp::Connection.new(
  hosts: nodes,
  reliable: nodes.size > 1, # go on with the next one
  connect_headers: {"accept-version": "1.0,1.1,1.2", host: host, "heart-beat": "500,500"}
)
abort "the session is refused" if connection.connection_frame.command != "CONNECTED"

version = connection.protocol
mode = version == Stomp::SPL_10 ? "client" : "client-individual"
numbers = 1.step
subscriptions = 1.step
receipt = -> { {receipt: "receipt-#{numbers.next}"} }
subscribe = lambda do |destination|
  connection.subscribe(destination, {id: "sub-#{subscriptions.next}", ack: mode, **receipt.call})
end
reply = lambda do |body, headers = {}|
  connection.publish("/queue/out", body, {**headers, **receipt.call})
end
# What ACK and NACK have to name depends on the version.
settle = lambda do |verb, message|
  name = version == Stomp::SPL_12 ? "ack" : "message-id"
  more = version == Stomp::SPL_11 ? {subscription: message.headers["subscription"]} : {}
  connection.public_send(verb, message.headers[name], {**more, **receipt.call})
end

subscribe.call("/queue/in")
while (message = connection.receive)
  abort "the broker says #{message.headers["message"]}" if message.command == "ERROR"
  next if message.command != "MESSAGE"

  # The gem gives all values of a header that is repeated.
  headers = message.headers.transform_values { |value| Array(value).first }
  own = headers.select { |name, _| name.start_with?("x-") }
  word, rest = message.body.split(" ", 2)
  case word
  when "quit"
    connection.unsubscribe("/queue/in", {id: "sub-1", **receipt.call})
    connection.disconnect(receipt.call)
    exit
  when "nack"
    settle.call(:nack, message)
    next
  when "subscribe"
    subscribe.call(rest)
  when "describe"
    reply.call(own.first.join("="))
  when "header"
    name, value = rest.split("=", 2)
    reply.call("", {name.to_sym => value})
  when "commit", "abort"
    transaction = connection.uuid
    connection.begin(transaction)
    reply.call(message.body, {transaction: transaction})
    connection.public_send(word, transaction)
  else
    own["content-type"] = headers["content-type"] if headers.key?("content-type")
    reply.call(message.body, own.transform_keys(&:to_sym))
  end
  settle.call(:ack, message)
end
abort "the connection is lost"
