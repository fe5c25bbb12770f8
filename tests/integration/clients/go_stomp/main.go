// A client on go-stomp for ../../test_foreign_clients.py; ../driver.py says what goes in and out.
//
// The library keeps RECEIPT frames to itself: a call that returns without an error has got its
// receipt. It cannot ask for one with SUBSCRIBE, ACK and NACK; a SEND behind them has one instead.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-stomp/stomp/v3"
	"github.com/go-stomp/stomp/v3/frame"
)

// syncDestination is a topic without subscribers.
const syncDestination = "/topic/go-stomp"

type headers map[string]string

// printed is a frame in the driver's form; encoding/json writes octets in base64.
type printed struct {
	Command string  `json:"command"`
	Headers headers `json:"headers"`
	Body    []byte  `json:"body"`
}

type call struct {
	Call    string  `json:"call"`
	Headers headers `json:"headers"`
	Text    *string `json:"text"`
	Octets  []byte  `json:"octets"`
	Message string  `json:"message"`
}

// connection notes when the stream has ended.
type connection struct {
	net.Conn
	ended func()
}

func (c connection) Read(octets []byte) (int, error) {
	count, err := c.Conn.Read(octets)
	if err != nil {
		c.ended()
	}
	return count, err
}

func (c connection) Close() error {
	c.ended()
	return c.Conn.Close()
}

// inbox has the messages of all subscriptions. The library stops reading when nobody takes them.
type inbox struct {
	lock     sync.Mutex
	changed  *sync.Cond
	messages []*stomp.Message
	open     int
	isEnded  bool
}

func newInbox() *inbox {
	box := &inbox{}
	box.changed = sync.NewCond(&box.lock)
	return box
}

func (box *inbox) update(change func()) {
	box.lock.Lock()
	defer box.lock.Unlock()
	change()
	box.changed.Broadcast()
}

func (box *inbox) end() {
	box.update(func() { box.isEnded = true })
}

func (box *inbox) collect(subscription *stomp.Subscription) {
	box.update(func() { box.open++ })
	go func() {
		for message := range subscription.C {
			if message.Err == nil {
				box.update(func() { box.messages = append(box.messages, message) })
			}
		}
		box.update(func() { box.open-- })
	}()
}

// next waits for a message; nil is the end of the connection.
func (box *inbox) next() *stomp.Message {
	box.lock.Lock()
	defer box.lock.Unlock()
	for len(box.messages) == 0 {
		if box.isEnded && box.open == 0 {
			return nil
		}
		box.changed.Wait()
	}
	message := box.messages[0]
	box.messages = box.messages[1:]
	return message
}

type session struct {
	conn          *stomp.Conn
	inbox         *inbox
	connected     printed
	beats         int64
	syncs         int
	subscriptions map[string]*stomp.Subscription
	transactions  map[string]*stomp.Transaction
	delivered     map[string]*stomp.Message // those that can be acknowledged, by message-id
}

func connect(host, port, versions, heartBeat string) (*session, error) {
	s := &session{
		inbox:         newInbox(),
		subscriptions: map[string]*stomp.Subscription{},
		transactions:  map[string]*stomp.Transaction{},
		delivered:     map[string]*stomp.Message{},
	}
	stream, err := net.Dial("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	var accepted []stomp.Version
	for _, version := range strings.Split(versions, ",") {
		accepted = append(accepted, stomp.Version(version))
	}
	var beats [2]time.Duration
	for index, text := range strings.Split(heartBeat, ",") {
		milliseconds, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		beats[index] = time.Duration(milliseconds) * time.Millisecond
	}
	s.conn, err = stomp.Connect(
		connection{stream, s.inbox.end},
		stomp.ConnOpt.Host(host),
		stomp.ConnOpt.AcceptVersion(accepted...),
		stomp.ConnOpt.HeartBeat(beats[0], beats[1]),
		stomp.ConnOpt.WithStats(),
		stomp.ConnOpt.ResponseHeaders(func(header *frame.Header) {
			s.connected = printable(frame.CONNECTED, header, nil)
		}),
	)
	return s, err
}

// synchronise waits until the broker has done all that was sent before.
func (s *session) synchronise() error {
	s.syncs++
	// The library takes ids of receipts of its own for those of subscriptions.
	receipt := stomp.SendOpt.Header("receipt", fmt.Sprintf("sync-%d", s.syncs))
	return s.conn.Send(syncDestination, "", nil, receipt)
}

func (s *session) send(named headers, c call) error {
	body := c.Octets
	if c.Text != nil {
		body = []byte(*c.Text)
	}
	destination, contentType := named["destination"], named["content-type"]
	var options []func(*frame.Frame) error
	for name, value := range named {
		switch name {
		case "destination", "content-type", "transaction":
		default:
			options = append(options, stomp.SendOpt.Header(name, value))
		}
	}
	if transaction, ok := s.transactions[named["transaction"]]; ok {
		return transaction.Send(destination, contentType, body, options...)
	}
	return s.conn.Send(destination, contentType, body, options...)
}

func (s *session) subscribe(named headers) error {
	mode := stomp.AckAuto
	switch named["ack"] {
	case "client":
		mode = stomp.AckClient
	case "client-individual":
		mode = stomp.AckClientIndividual
	}
	id := stomp.SubscribeOpt.Id(named["id"])
	subscription, err := s.conn.Subscribe(named["destination"], mode, id)
	if err != nil {
		return err
	}
	s.subscriptions[named["id"]] = subscription
	s.inbox.collect(subscription)
	return s.synchronise()
}

func (s *session) acknowledge(c call, named headers) error {
	message := s.delivered[c.Message]
	transaction, inTransaction := s.transactions[named["transaction"]]
	var err error
	switch {
	case c.Call == "ack" && inTransaction:
		err = transaction.Ack(message)
	case c.Call == "ack":
		err = s.conn.Ack(message)
	case inTransaction:
		err = transaction.Nack(message)
	default:
		err = s.conn.Nack(message)
	}
	if err != nil {
		return err
	}
	return s.synchronise()
}

func (s *session) begin(name string) error {
	transaction, err := s.conn.BeginWithError()
	s.transactions[name] = transaction
	return err
}

// beat waits for what the library has read and nobody has waited for.
func (s *session) beat() {
	for s.conn.Stats().ReadsReceived <= s.beats {
		time.Sleep(50 * time.Millisecond)
	}
	s.beats++
}

func (s *session) perform(c call) (any, error) {
	var err error
	switch c.Call {
	case "receive":
		message := s.inbox.next()
		if message == nil {
			return nil, nil
		}
		s.delivered[message.Header.Get("message-id")] = message
		return printable(frame.MESSAGE, message.Header, message.Body), nil
	case "beat":
		s.beat()
	case "send":
		err = s.send(c.Headers, c)
	case "subscribe":
		err = s.subscribe(c.Headers)
	case "unsubscribe":
		err = s.subscriptions[c.Headers["id"]].Unsubscribe()
	case "ack", "nack":
		err = s.acknowledge(c, c.Headers)
	case "begin":
		err = s.begin(c.Headers["transaction"])
	case "commit":
		err = s.transactions[c.Headers["transaction"]].Commit()
	case "abort":
		err = s.transactions[c.Headers["transaction"]].Abort()
	case "disconnect":
		err = s.conn.Disconnect()
	default:
		err = fmt.Errorf("no call %q", c.Call)
	}
	var refusal stomp.Error
	var reference *stomp.Error
	switch {
	case errors.As(err, &refusal) && refusal.Frame != nil:
		return printable(refusal.Frame.Command, refusal.Frame.Header, refusal.Frame.Body), nil
	case errors.As(err, &reference) && reference.Frame != nil:
		return printable(reference.Frame.Command, reference.Frame.Header, reference.Frame.Body), nil
	case err != nil:
		return nil, err
	}
	if receipt, ok := c.Headers["receipt"]; ok {
		return printed{frame.RECEIPT, headers{"receipt-id": receipt}, []byte{}}, nil
	}
	return nil, nil
}

func printable(command string, header *frame.Header, body []byte) printed {
	named := headers{}
	for index := header.Len() - 1; index >= 0; index-- { // the first of a name counts
		name, value := header.GetAt(index)
		named[name] = value
	}
	return printed{command, named, append([]byte{}, body...)}
}

func run() error {
	session, err := connect(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	if err != nil {
		return err
	}
	answers := json.NewEncoder(os.Stdout)
	if err := answers.Encode(session.connected); err != nil {
		return err
	}
	calls := json.NewDecoder(bufio.NewReader(os.Stdin))
	for calls.More() {
		var c call
		if err := calls.Decode(&c); err != nil {
			return err
		}
		answer, err := session.perform(c)
		if err != nil {
			return err
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
		if c.Call == "disconnect" || c.Call == "receive" && answer == nil {
			return nil
		}
	}
	return session.conn.Disconnect()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
